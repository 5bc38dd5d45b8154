// Shows /openapi.json: each call with its parameters, and each message with its fields.
import { get } from "./api.js";

const SCHEMAS = "#/components/schemas/";

/** An element with a class, and texts or elements in it. */
function element(name, className, ...content) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...content);
  return made;
}

/** A message's name as a link to its description; the name of another type. */
function typeOf(schema = {}) {
  if (schema.$ref) {
    const name = schema.$ref.slice(SCHEMAS.length);
    const link = element("a", "", name);
    link.href = `#${name}`;
    return link;
  }
  if (schema.type === "array") return element("span", "", "list of ", typeOf(schema.items));
  return element("span", "", schema.type ?? "");
}

/** Names with their types and meanings. */
function list(items) {
  const made = element("dl", "");
  for (const [name, schema, about] of items) {
    made.append(element("dt", "", name, " ", element("span", "type", typeOf(schema))));
    made.append(element("dd", "", about ?? ""));
  }
  return made;
}

function fieldsOf(schema) {
  return Object.entries(schema.properties ?? {}).map(([name, field]) => [name, field, field.description]);
}

function call(verb, path, operation) {
  const named = [element("span", "verb", verb.toUpperCase()), element("code", "", path)];
  const made = element("details", "call", element("summary", "", ...named, ` ${operation.summary ?? ""}`));
  if (operation.description) made.append(element("p", "about", operation.description));
  const parameters = (operation.parameters ?? []).map((each) => [each.name, each.schema, each.description]);
  if (parameters.length) made.append(list(parameters));
  for (const [kind, { schema }] of Object.entries(operation.requestBody?.content ?? {})) {
    made.append(element("h3", "", `Body: ${kind} `, typeOf(schema)));
    if (schema.properties) made.append(list(fieldsOf(schema)));
  }
  const [kind, { schema }] = Object.entries(operation.responses["200"].content)[0];
  made.append(element("h3", "", `Answer: ${kind} `, typeOf(schema)));
  return made;
}

function kind(name, schema) {
  const made = element("details", "kind", element("summary", "", name));
  made.id = name;
  made.append(element("p", "about", schema.description ?? ""), list(fieldsOf(schema)));
  return made;
}

function show({ info, paths, components }) {
  const sections = new Map();
  for (const [path, operations] of Object.entries(paths)) {
    for (const [verb, operation] of Object.entries(operations)) {
      const tag = operation.tags?.[0] ?? "";
      if (!sections.has(tag)) sections.set(tag, element("section", "", element("h2", "", tag)));
      sections.get(tag).append(call(verb, path, operation));
    }
  }
  const kinds = element("section", "", element("h2", "", "Messages"));
  for (const [name, schema] of Object.entries(components.schemas)) kinds.append(kind(name, schema));
  const about = element("p", "about", `${info.description} Version ${info.version}.`);
  document.getElementById("calls").replaceChildren(about, ...sections.values(), kinds);
}

/** Open the description that the address names. */
function openNamed() {
  const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (named instanceof HTMLDetailsElement) named.open = true;
  named?.scrollIntoView();
}

addEventListener("hashchange", openNamed);
try {
  show(await get("openapi.json"));
  openNamed();
} catch (error) {
  document.getElementById("state").textContent = error.message;
}

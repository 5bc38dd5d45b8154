// Makes Node's fetch keep a browser's rules about other origins: a preflight before each call, only
// headers that it allows, an answer only for our origin, and of that only the headers it exposes.
const ORIGIN = "http://localhost:3000";
const plain = globalThis.fetch;

const list = (headers, name) => (headers.get(name) ?? "").toLowerCase().split(/\s*,\s*/);

function check(condition, message) {
  if (!condition) throw new TypeError(`blocked as by a browser: ${message}`);
}

globalThis.fetch = async (url, init) => {
  const sent = new Headers(init.headers);
  const preflight = await plain(url, {
    method: "OPTIONS",
    headers: {
      origin: ORIGIN,
      "access-control-request-method": init.method,
      "access-control-request-headers": [...sent.keys()].join(","),
    },
  });
  check(preflight.ok, `the preflight was answered with ${preflight.status}`);
  const allowed = list(preflight.headers, "access-control-allow-headers");
  for (const name of sent.keys()) check(allowed.includes(name), `the header ${name}`);

  sent.set("origin", ORIGIN);
  const response = await plain(url, { ...init, headers: sent });
  const origin = response.headers.get("access-control-allow-origin");
  check(origin === ORIGIN, `an answer for the origin ${origin}`);
  const exposed = [...list(response.headers, "access-control-expose-headers"), "content-type"];
  const seen = [...response.headers].filter(([name]) => exposed.includes(name));
  return new Response(response.body, { status: response.status, headers: seen });
};

// The page: translates as one types, and shows how the model came to it.

import { ApiError, get, post, stream, useKey } from "./api.js";
import { AttentionView, percent } from "./attention_view.js";
import { readFragment, writeFragment } from "./fragment.js";
import { Directions, directionOf, nameOf } from "./languages.js";

const $ = (id) => document.getElementById(id);
const DEBOUNCE_MS = 300;
const NUM_ALTERNATIVES = 5;
const MAX_RETRIES = 5;
const START_SECONDS = 2; // until the next look at a server that starts
const CARDS = ["sentences-card", "alternatives-card", "attention-card"]; // about the translation
const DETAILED_CHARACTERS = 5000; // of longer texts, only the translation is shown

const state = readFragment();
const view = new AttentionView(state, () => writeFragment(state));
let directions = new Directions([]);
let models = []; // of ListModels
let limits = { maxContentCharacters: Infinity, maxRows: NUM_ALTERNATIVES };
let running = new AbortController(); // what the current text started
let choosing = new AbortController(); // what the current sentence or alternative started
let timer;
let shown = nothing(); // of the translation, once it is complete

// --- languages ---------------------------------------------------------------------------------

async function start() {
  try {
    const [{ groups }, listed] = await Promise.all([get("/v1/languages"), get("/v1/models")]);
    directions = new Directions(groups);
    models = listed.models;
    limits = models[0]?.limits ?? limits;
    const origins = models.map((model) => `${model.name} (${model.precision})`);
    $("served").textContent = origins.slice(0, 3).join(", ") + (origins.length > 3 ? " …" : "");
  } catch (error) {
    say(error, start);
    return;
  }
  say("");
  const [first] = directions.sources;
  if (!directions.sources.includes(state.from)) state.from = first;
  $("source").value = state.text;
  $("shade").checked = Boolean(state.shade);
  showLanguages();
  if (document.activeElement === document.body) $("source").focus({ preventScroll: true });
  changed(0);
}

function showLanguages() {
  const option = (code) => new Option(nameOf(code), code);
  const byName = (a, b) => nameOf(a).localeCompare(nameOf(b));
  $("from").replaceChildren(...directions.sources.toSorted(byName).map(option));
  const direct = directions.targets(state.from);
  const further = directions.further(state.from);
  if (!direct.includes(state.to) && !further.includes(state.to)) state.to = direct[0];
  $("to").replaceChildren(...direct.toSorted(byName).map(option));
  if (further.length) {
    const group = document.createElement("optgroup");
    group.label = "Through another language";
    group.append(...further.toSorted(byName).map(option));
    $("to").append(group);
  }
  $("from").value = state.from;
  $("to").value = state.to;
  const canSwap = directions.has(state.to, state.from);
  $("swap").disabled = !canSwap;
  $("swap").title = canSwap
    ? "Swap languages"
    : `No model of this server translates from ${nameOf(state.to)} into ${nameOf(state.from)}`;
  for (const [id, code] of [["source", state.from], ["output", state.to]]) {
    $(id).lang = code;
    $(id).dir = directionOf(code);
  }
}

function chooseLanguages(from, to) {
  Object.assign(state, { from, to });
  showLanguages();
  changed(0);
}

// --- translating -------------------------------------------------------------------------------

function changed(delay = DEBOUNCE_MS) {
  state.text = $("source").value;
  if (!directions.sources.length) return; // the message says why
  const length = Array.from(state.text).length;
  const isTooLong = length > limits.maxContentCharacters;
  $("count").textContent = length
    ? `${length.toLocaleString()} of ${limits.maxContentCharacters.toLocaleString()} characters`
    : "";
  $("clear").hidden = !length;
  shown = nothing();
  outdate();
  running.abort(); // the server frees what the call had
  choosing.abort();
  clearTimeout(timer);
  if (isTooLong) {
    endBusy(...CARDS);
    $("details").hidden = true;
    say("The text is too long.");
    return;
  }
  say("");
  timer = setTimeout(translate, delay);
}

/** Show what is there as that of an older text. */
function outdate() {
  const details = $("details");
  details.style.minHeight = `${details.offsetHeight}px`; // the page does not jump meanwhile
  for (const id of CARDS) $(id).ariaBusy = "true";
  $("output").classList.add("stale");
  $("copy").disabled = true;
}

/** The cards show what belongs to the text. */
function endBusy(...cards) {
  for (const id of cards) $(id).ariaBusy = "false";
  if (CARDS.every((id) => $(id).ariaBusy !== "true")) $("details").style.minHeight = "";
}

function clearDetails() {
  $("sentences-card").hidden = true;
  $("sentences").replaceChildren();
  $("alternatives").replaceChildren();
  $("greedy").hidden = true;
  view.explain("");
}

async function translate(numRetries = 0) {
  writeFragment(state);
  running.abort(); // if it was tried again twice
  running = new AbortController();
  const { signal } = running;
  if (!state.text.trim()) {
    showText("");
    endBusy(...CARDS);
    $("details").hidden = true;
    $("timing").textContent = "";
    say("");
    return;
  }
  const output = $("output");
  output.ariaBusy = "true"; // a screen reader reads the whole, not each piece
  const started = performance.now();
  let isComplete = false;
  try {
    let text = "";
    for await (const { delta } of stream("/v1/translate:stream", { content: state.text, ...languages() }, signal)) {
      if (!delta) continue;
      if (!text) clearDetails();
      text += delta.text;
      showText(text);
    }
    if (!text) showText("");
    isComplete = true;
    say("");
    $("timing").textContent = `${((performance.now() - started) / 1000).toFixed(2)} s`;
    output.ariaBusy = "false";
    await showDetails(text, signal);
  } catch (error) {
    if (signal.aborted) return; // by a newer text
    if (!isComplete) {
      output.classList.add("stale");
      $("copy").disabled = true;
    }
    failed(error, numRetries, signal);
  } finally {
    if (signal === running.signal) output.ariaBusy = "false";
  }
}

function failed(error, numRetries, signal) {
  const isBusy = error instanceof ApiError && (error.http === 429 || error.http === 503);
  if (!isBusy || numRetries >= MAX_RETRIES) {
    endBusy(...CARDS);
    $("details").hidden = true; // of an older text
    say(error, () => translate());
    return;
  }
  const seconds = error.retrySeconds ?? START_SECONDS;
  say(`${error.http === 429 ? "The server is busy" : error.message}. Trying again in ${Math.ceil(seconds)} s.`);
  timer = setTimeout(() => signal.aborted || translate(numRetries + 1), 1000 * seconds);
}

function languages() {
  return { sourceLanguageCode: state.from, targetLanguageCode: state.to };
}

function showText(text) {
  $("output").textContent = text;
  $("output").classList.remove("stale");
  $("copy").disabled = !text;
}

/** Show a message, or an error with a button that tries again. */
function say(message, again) {
  const isError = message instanceof Error;
  $("status").textContent = isError ? message.message : message;
  $("status").classList.toggle("failed", isError);
  if (message.http === 401 && again) {
    $("status").append(" ", keyField(again));
  } else if (isError && again) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Try again";
    button.addEventListener("click", () => again());
    $("status").append(" ", button);
    if (message.http === 0) addEventListener("online", () => again(), { once: true });
  }
}

/** A field that asks for an API key, and a button that tries again with it. */
function keyField(again) {
  const field = document.createElement("span");
  const input = document.createElement("input");
  input.type = "password";
  input.autocomplete = "off";
  input.setAttribute("aria-label", "API key");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Use this key";
  button.addEventListener("click", () => {
    useKey(input.value);
    again();
  });
  input.addEventListener("keydown", ({ key }) => key === "Enter" && button.click());
  field.append(input, " ", button);
  return field;
}

// --- how it came to it -------------------------------------------------------------------------

function nothing() {
  return { sentences: [], pivot: "", text: "" };
}

async function showDetails(text, signal) {
  if (text.length > DETAILED_CHARACTERS) {
    endBusy(...CARDS);
    $("details").hidden = true;
    say("Alternatives and attention are shown for shorter texts.");
    return;
  }
  const options = { numHypotheses: 1, returnTokens: true, search: { beamSize: 1 } }; // as the stream
  const answer = await post("/v1/translate", { contents: [state.text], ...languages(), options }, signal);
  const [translation] = answer.translations;
  if (translation.status) throw new ApiError(translation.status.message);
  shown = { sentences: translation.sentences, pivot: answer.pivotLanguageCode, text };
  $("details").hidden = !shown.sentences.length;
  if (!shown.sentences.length) {
    endBusy(...CARDS);
    say(
      `Copied, not translated: the text has no words in the letters of ${nameOf(state.from)} that a model could ` +
        "translate (numbers, addresses, code and other scripts are copied).",
    );
    return;
  }
  rate();
  showSentences();
  showGreedy(answer.model);
  endBusy("sentences-card");
  await choose(0, signal);
}

/** Say it where the translation is not the model's best: a stream is greedy. */
function showGreedy(name) {
  const beamSize = models.find((model) => model.name === name)?.defaultSearch?.beamSize ?? 1;
  $("greedy").hidden = beamSize < 2;
  $("greedy").textContent =
    "The translation above appears as it is generated, word by word (greedy search); " +
    `by default, this model searches with a beam of ${beamSize}, and may choose another.`;
}

/** The translation with the probability of each token as shading. */
function rate() {
  const output = $("output");
  if (!shown.sentences.length) return;
  if (!$("shade").checked) {
    output.textContent = shown.text;
    return;
  }
  const parts = [];
  let at = 0;
  for (const { hypotheses: [{ text, tokens }] } of shown.sentences) {
    const start = shown.text.indexOf(text, at);
    if (start < 0) continue; // normalised
    parts.push(shown.text.slice(at, start));
    const characters = Array.from(text);
    let done = 0;
    for (const token of tokens) {
      if (token.end <= done) continue;
      parts.push(characters.slice(done, token.start).join(""));
      parts.push(rated(characters.slice(token.start, token.end).join(""), token.logProbability));
      done = token.end;
    }
    parts.push(characters.slice(done).join(""));
    at = start + text.length;
  }
  parts.push(shown.text.slice(at));
  output.replaceChildren(...parts);
}

function rated(text, logProbability) {
  const span = document.createElement("span");
  const share = Math.exp(logProbability);
  span.className = "rated";
  span.textContent = text;
  span.title = percent(share);
  span.style.setProperty("--doubt", String(1 - share));
  return span;
}

function showSentences() {
  $("sentences-card").hidden = shown.sentences.length < 2;
  const made = shown.sentences.map((sentence, place) =>
    radio("sentence", sentence.sourceText, place === 0, state.from, () => choose(place)),
  );
  $("sentences").replaceChildren(...made);
}

/** A radio button with a text, and what is to its right. */
function radio(name, text, isChecked, code, onChoose, ...more) {
  const label = document.createElement("label");
  const input = document.createElement("input");
  const span = document.createElement("span");
  Object.assign(input, { type: "radio", name, checked: isChecked });
  Object.assign(span, { textContent: text, lang: code, dir: directionOf(code), className: "text" });
  label.className = "choice";
  input.addEventListener("change", onChoose);
  label.append(input, span, ...more);
  return label;
}

/** Show a sentence: its alternatives, and the attention of its translation. */
async function choose(place) {
  choosing.abort();
  choosing = new AbortController();
  const { signal } = choosing;
  const sentence = shown.sentences[place];
  const [best] = sentence.hypotheses;
  $("alternatives").replaceChildren();
  for (const id of ["alternatives-card", "attention-card"]) $(id).ariaBusy = "true";
  try {
    await Promise.all([
      showAttention(sentence.sourceText, best.text, signal),
      showAlternatives(sentence.sourceText, best, signal),
    ]);
  } catch (error) {
    if (signal.aborted) return;
    endBusy("alternatives-card", "attention-card");
    say(error, () => choose(place));
  }
}

async function showAlternatives(sourceText, best, signal) {
  const beamSize = Math.min(NUM_ALTERNATIVES, limits.maxRows);
  const options = { numHypotheses: beamSize, splitSentences: false, search: { beamSize } };
  const answer = await post("/v1/translate", { contents: [sourceText], ...languages(), options }, signal);
  const hypotheses = answer.translations[0].sentences[0]?.hypotheses ?? [];
  const all = hypotheses.some(({ text }) => text === best.text) ? hypotheses : [best, ...hypotheses];
  const made = all.map((hypothesis) => {
    const score = document.createElement("span");
    score.className = "score";
    const probability = hypothesis.logProbability.toFixed(2).replace("-", "−");
    const ranked = hypothesis.score.toFixed(2).replace("-", "−");
    score.textContent = hypothesis === best ? `${probability} (not in the beam)` : `${probability}, score ${ranked}`;
    const onChoose = () => chooseAlternative(sourceText, hypothesis.text);
    return radio("alternative", hypothesis.text, hypothesis.text === best.text, state.to, onChoose, score);
  });
  $("alternatives").replaceChildren(...made);
  endBusy("alternatives-card");
}

async function chooseAlternative(sourceText, text) {
  try {
    $("attention-card").ariaBusy = "true";
    await showAttention(sourceText, text, choosing.signal);
  } catch (error) {
    if (error.name !== "AbortError") say(error);
  }
}

async function showAttention(sourceText, translatedText, signal) {
  if (shown.pivot) {
    view.explain(`Two models translated, through ${nameOf(shown.pivot)}: there is no attention from one text to the other.`);
    endBusy("attention-card");
    return;
  }
  try {
    await view.show({ sourceText, translatedText, ...languages() }, signal);
  } catch (error) {
    if (signal.aborted) throw error;
    view.explain(error.message);
  }
  if (!signal.aborted) endBusy("attention-card");
}

// --- events ------------------------------------------------------------------------------------

$("source").addEventListener("input", () => changed());
$("source").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) changed(0);
});
$("from").addEventListener("change", () => chooseLanguages($("from").value, state.to));
$("to").addEventListener("change", () => chooseLanguages(state.from, $("to").value));
$("swap").addEventListener("click", () => {
  $("source").value = $("output").textContent;
  chooseLanguages(state.to, state.from);
});
$("languages").addEventListener("submit", (event) => event.preventDefault());
$("clear").addEventListener("click", () => {
  $("source").value = "";
  $("source").focus();
  changed(0);
});
$("shade").addEventListener("change", () => {
  state.shade = $("shade").checked ? "1" : "";
  writeFragment(state);
  rate();
});
$("copy").addEventListener("click", () => copy($("output").textContent, "timing", "Copied."));
$("link").addEventListener("click", () => {
  writeFragment(state);
  copy(location.href, "done", "The link has the text and what is chosen here.");
});
addEventListener("hashchange", (event) => {
  // Since the event, the page may have written the state before into the URL.
  Object.assign(state, readFragment(new URL(event.newURL).hash));
  start();
});

async function copy(text, where, message) {
  try {
    await navigator.clipboard.writeText(text);
    $(where).textContent = message;
  } catch {
    $(where).textContent = "The browser did not allow it: copy from the address bar, or select the text.";
  }
}

start();

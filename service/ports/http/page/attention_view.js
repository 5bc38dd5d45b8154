// The part of the page that shows attention: words, heat map, all heads, table, export.

import { Attention } from "./attention.js";
import { visible } from "./characters.js";
import { cellAt, draw, drawScale, drawSmall } from "./heatmap.js";
import { directionOf, nameOf } from "./languages.js";

const $ = (id) => document.getElementById(id);
const MOST = 3; // words that a description names, each with at least this weight
const LEAST = 0.01;
const NONE = { row: -1, column: -1 };
// A pair is shown for so long before all its layers and heads are fetched, if they can be seen.
const ALL_HEADS_MS = 1000;

/** Shows the attention of one pair at a time. `state` has kind, layer, head and unit. */
export class AttentionView {
  constructor(state, onChange) {
    this.state = state;
    this.onChange = onChange;
    this.attention = null;
    this.matrix = null;
    this.marked = NONE;
    this.turn = 0; // of what was chosen last
    this.isVisible = false; // the part with all heads
    for (const name of ["kind", "layer", "head", "unit"]) {
      $(name).addEventListener("change", () => this.#choose({ [name]: $(name).value }));
    }
    const canvas = $("heatmap");
    canvas.addEventListener("pointermove", (event) => this.#point(event));
    canvas.addEventListener("pointerdown", (event) => this.#point(event));
    canvas.addEventListener("pointerleave", () => this.#mark(NONE));
    canvas.addEventListener("keydown", (event) => this.#move(event));
    $("heads").addEventListener("keydown", (event) => this.#stepHead(event));
    $("png").addEventListener("click", () => this.#save());
    new ResizeObserver(() => this.#draw()).observe($("attention-view"));
    new IntersectionObserver(([{ isIntersecting }]) => {
      this.isVisible = isIntersecting;
      this.#loadHeads();
    }).observe($("heads-part"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#drawAll());
  }

  /** Show why there is nothing to show. */
  explain(message) {
    this.turn += 1;
    this.attention = null;
    $("attention-message").textContent = message;
    $("attention-view").hidden = true;
  }

  /** Show a pair; see `Attention`. */
  async show(pair, signal) {
    this.attention = new Attention(pair);
    this.signal = signal;
    await this.#load(this.state);
  }

  async #load(chosen) {
    this.turn += 1;
    const { attention, turn, signal } = this;
    const { found, reason } = await attention.load(chosen, signal);
    if (turn !== this.turn || signal?.aborted) return;
    Object.assign(this.state, found);
    $("attention-view").hidden = false;
    this.#update();
    $("attention-message").textContent = attention.isLimited
      ? "This model's bundle has no attention weights: import the model again, or export its checkpoint again. " +
        "Shown is the average of one layer, which alignments come from."
      : reason || (this.matrix.isNumbered
        ? `This model attends to ${this.matrix.columns.length} weighted sums of positions, which are numbered.`
        : "");
  }

  async #choose(change) {
    if (!this.attention) return;
    const { attention } = this;
    try {
      await this.#load({ ...this.state, ...change });
    } catch (error) {
      if (error.name === "AbortError" || attention !== this.attention) return;
      if (attention.has(this.state)) this.#update(); // what was chosen before
      $("attention-message").textContent = error.message;
    }
    this.onChange();
  }

  /** Fetch and draw all layers and heads, once they can be seen. */
  #loadHeads() {
    clearTimeout(this.timer);
    if (!this.isVisible || !this.attention || $("heads-part").hidden) return;
    const { attention, signal, state: { kind } } = this;
    if (attention.grids.has(kind)) return;
    this.timer = setTimeout(async () => {
      const isShown = () => attention === this.attention && kind === this.state.kind && !signal?.aborted;
      if (!isShown()) return;
      let message = "";
      try {
        await attention.loadAll(kind, signal);
      } catch (error) {
        ({ message } = error);
      }
      if (!isShown()) return;
      $("heads-message").textContent = message;
      this.#drawHeads();
    }, ALL_HEADS_MS);
  }

  #update() {
    const { attention, state } = this;
    const { layers, heads } = attention.choices(state.kind);
    fill("layer", "All layers (mean)", "Layer", layers, state);
    fill("head", "All heads (mean)", "Head", heads, state);
    $("kind").value = state.kind;
    $("kind").disabled = attention.isLimited;
    $("unit").value = state.unit;
    this.matrix = named(attention.matrix(state, state.unit));
    this.marked = NONE;
    this.#words();
    this.#heads(layers, heads);
    this.#table();
    this.#drawAll();
  }

  get #flips() {
    const { pair } = this.attention;
    const code = this.state.kind === "decoder" ? pair.targetLanguageCode : pair.sourceLanguageCode;
    return directionOf(code) === "rtl";
  }

  #width() {
    return Math.max(240, $("heatmap").closest(".scroll").clientWidth);
  }

  #draw() {
    if (!this.attention || !this.matrix) return;
    const scale = window.devicePixelRatio || 1;
    draw($("heatmap"), this.matrix, {
      width: this.#width(), marked: this.marked, flips: this.#flips, scale, caption: "",
    });
  }

  #drawAll() {
    if (!this.attention || !this.matrix) return;
    this.#draw();
    drawScale($("scale"));
    this.#drawHeads();
    $("heatmap").setAttribute(
      "aria-label",
      `Heat map of attention weights: ${this.matrix.rows.length} rows by ${this.matrix.columns.length} columns. ` +
        "The arrow keys move from cell to cell. The same weights are in the table below.",
    );
    this.#mark(this.marked);
  }

  /** Both sides as words to point at. */
  #words() {
    const { pair } = this.attention;
    const kind = this.state.kind;
    const sides = {
      row: kind === "encoder" ? pair.sourceLanguageCode : pair.targetLanguageCode,
      column: kind === "decoder" ? pair.targetLanguageCode : pair.sourceLanguageCode,
    };
    const probabilities = kind === "encoder" ? [] : this.matrix.rows;
    for (const side of ["column", "row"]) {
      const line = $(`${side}-words`);
      line.lang = sides[side];
      line.dir = directionOf(sides[side]);
      const what = side === "row" ? "what attends" : "what is attended to";
      line.setAttribute("aria-label", `${nameOf(sides[side])}: ${what}`);
      const labels = side === "row" ? this.matrix.rows : this.matrix.columns;
      line.replaceChildren(
        ...labels.map((label, place) => this.#word(side, label, place, probabilities[place])),
      );
    }
  }

  #word(side, label, place, probability) {
    const word = document.createElement("span");
    word.className = label.isSpecial ? "word special" : "word";
    word.role = "option";
    word.textContent = label.text;
    word.tabIndex = place === 0 ? 0 : -1;
    word.ariaSelected = "false";
    const known = side === "row" && probability?.logProbability !== undefined;
    if (known) {
      const share = Math.exp(probability.logProbability);
      word.style.setProperty("--doubt", String(1 - share));
      word.classList.add("rated");
    }
    word.ariaLabel = `${label.text}: ${plain(this.#description(side, place))}` +
      (known ? `; probability ${percent(Math.exp(probability.logProbability))}` : "");
    const mark = () => this.#mark({ ...NONE, [side]: place });
    word.addEventListener("pointerenter", mark);
    word.addEventListener("pointerleave", () => this.#mark(NONE));
    word.addEventListener("focus", mark);
    word.addEventListener("blur", () => this.#mark(NONE));
    word.addEventListener("keydown", (event) => this.#step(event, word));
    return word;
  }

  /** Move the focus within a line of words. */
  #step(event, word) {
    const isRight = getComputedStyle(word).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
    const isLeft = isRight === "ArrowLeft" ? "ArrowRight" : "ArrowLeft";
    const all = [...word.parentElement.children];
    const at = all.indexOf(word);
    const next = { [isRight]: at + 1, [isLeft]: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const other = all[next];
    if (!other) return;
    focusOn(other, word);
  }

  /** The largest weights of a row or column, as texts and `{ word }`s. */
  #description(side, place) {
    const { rows, columns, weights } = this.matrix;
    const line = side === "row" ? weights[place] : weights.map((row) => row[place]);
    const others = side === "row" ? columns : rows;
    const most = line
      .map((weight, at) => ({ weight, text: others[at].text }))
      .sort((a, b) => b.weight - a.weight)
      .filter(({ weight }, at) => !at || (at < MOST && weight >= LEAST))
      .flatMap(({ weight, text }, at) => [at ? ", " : "", { word: text }, ` ${percent(weight)}`]);
    return [side === "row" ? "attends to " : "gets from ", ...most];
  }

  /** Mark a row, a column, or the cell of both. */
  #mark(marked) {
    this.marked = marked;
    const { row, column } = marked;
    const { rows, columns, weights } = this.matrix;
    const show = (side, place, weightOf) => {
      [...$(`${side}-words`).children].forEach((word, at) => {
        word.ariaSelected = String(at === place);
        word.style.setProperty("--weight", weightOf ? String(weightOf(at)) : "0");
      });
    };
    show("column", column, row >= 0 ? (at) => weights[row][at] : null);
    show("row", row, column >= 0 ? (at) => weights[at][column] : null);
    this.#draw();
    let parts = [];
    if (row >= 0 && column >= 0) {
      const weight = weights[row][column].toFixed(3);
      parts = [{ word: rows[row].text }, " → ", { word: columns[column].text }, `: ${weight}`];
    } else if (row >= 0) {
      parts = [{ word: rows[row].text }, " ", ...this.#description("row", row)];
    } else if (column >= 0) {
      parts = [{ word: columns[column].text }, " ", ...this.#description("column", column)];
    }
    $("readout").replaceChildren(...parts.map(isolated));
  }

  #point(event) {
    const point = { x: event.offsetX, y: event.offsetY };
    const found = cellAt(this.matrix, this.#width(), this.#flips, point) ?? NONE;
    if (found.row !== this.marked.row || found.column !== this.marked.column) this.#mark(found);
  }

  #move(event) {
    const ahead = this.#flips ? -1 : 1;
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -ahead], ArrowRight: [0, ahead] };
    const move = moves[event.key];
    if (event.key === "Escape") this.#mark(NONE);
    if (!move) return;
    event.preventDefault();
    const within = (place, size) => Math.max(0, Math.min(size - 1, place));
    this.#mark({
      row: within(this.marked.row + move[0], this.matrix.rows.length),
      column: within(this.marked.column + move[1], this.matrix.columns.length),
    });
  }

  #drawHeads() {
    const { attention, state: { kind, unit } } = this;
    if (!attention.grids.has(kind)) return;
    for (const { canvas, layer, head } of this.small ?? []) {
      drawSmall(canvas, attention.matrix({ kind, layer: String(layer), head: String(head) }, unit), this.#flips);
    }
  }

  /** Small heat maps of all layers and heads, which are drawn when they are there. */
  #heads(layers, heads) {
    const grid = $("heads");
    this.small = [];
    this.numHeads = heads.length;
    $("heads-part").hidden = layers.length * heads.length < 2;
    grid.style.setProperty("--heads", String(heads.length || 1));
    const number = (text) => Object.assign(document.createElement("span"), { textContent: text, ariaHidden: "true" });
    const cells = [number(""), ...heads.map(number)];
    for (const layer of $("heads-part").hidden ? [] : layers) {
      cells.push(number(layer), ...heads.map((head) => this.#head(layer, head)));
    }
    grid.replaceChildren(...cells);
    const buttons = [...grid.querySelectorAll("button")];
    const chosen = buttons.find((button) => button.ariaPressed === "true") ?? buttons[0];
    if (chosen) chosen.tabIndex = 0; // the others by the arrow keys
    $("heads-message").textContent = "";
    this.#loadHeads();
  }

  /** Move the focus among the small heat maps. */
  #stepHead(event) {
    if (!(event.target instanceof HTMLButtonElement)) return;
    const { numHeads } = this;
    const all = [...$("heads").querySelectorAll("button")];
    const at = all.indexOf(event.target);
    const column = at % numHeads;
    const moves = {
      ArrowLeft: column ? -1 : 0,
      ArrowRight: column < numHeads - 1 ? 1 : 0,
      ArrowUp: -numHeads,
      ArrowDown: numHeads,
      Home: -at,
      End: all.length - 1 - at,
    };
    const other = all[at + moves[event.key]];
    if (!(event.key in moves)) return;
    event.preventDefault();
    if (other) focusOn(other, all[at]);
  }

  #head(layer, head) {
    const { state } = this;
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [this.matrix.columns.length, this.matrix.rows.length]; // until it is drawn
    const button = document.createElement("button");
    const isChosen = String(layer) === state.layer && String(head) === state.head;
    button.type = "button";
    button.tabIndex = -1;
    button.title = `Layer ${layer}, head ${head}`;
    button.ariaLabel = button.title;
    button.ariaPressed = String(isChosen);
    button.append(canvas);
    button.addEventListener("click", async () => {
      const chosen = { layer: String(layer), head: String(head) };
      await this.#choose(isChosen ? { layer: "mean", head: "mean" } : chosen);
      const again = document.querySelector(`#heads [title="${button.title}"]`);
      if (again) focusOn(again, document.querySelector('#heads [tabindex="0"]'));
    });
    this.small.push({ canvas, layer, head });
    return button;
  }

  #table() {
    const { rows, columns, weights } = this.matrix;
    const hasProbability = this.state.kind !== "encoder" && rows[0]?.logProbability !== undefined;
    const cell = (kind, text, scope) => {
      const made = document.createElement(kind);
      made.textContent = text;
      if (scope) made.scope = scope;
      return made;
    };
    const line = (...cells) => {
      const made = document.createElement("tr");
      made.append(...cells);
      return made;
    };
    const head = document.createElement("thead");
    head.append(
      line(
        cell("th", "", "col"),
        ...(hasProbability ? [cell("th", "probability", "col")] : []),
        ...columns.map((label) => cell("th", label.text, "col")),
      ),
    );
    const body = document.createElement("tbody");
    body.append(
      ...rows.map((label, i) =>
        line(
          cell("th", label.text, "row"),
          ...(hasProbability ? [cell("td", percent(Math.exp(label.logProbability)))] : []),
          ...weights[i].map((weight) => cell("td", weight.toFixed(2))),
        ),
      ),
    );
    $("table").replaceChildren(head, body);
  }

  #save() {
    const canvas = document.createElement("canvas");
    const caption = `${text("kind")}; ${text("layer")}; ${text("head")}`;
    const options = { width: 900, marked: NONE, flips: this.#flips, scale: 2, caption };
    draw(canvas, this.matrix, options);
    canvas.toBlob((blob) => {
      const anchor = document.createElement("a");
      anchor.href = URL.createObjectURL(blob);
      anchor.download = "attention.png";
      anchor.click();
      setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
      $("done").textContent = "Saved.";
    });
  }
}

/** Move the one Tab stop of a group, and the focus. */
function focusOn(other, before) {
  before.tabIndex = -1;
  other.tabIndex = 0;
  other.focus();
}

/** A matrix whose labels can all be seen. */
function named(matrix) {
  const all = (labels) => labels.map((label) => ({ ...label, text: visible(label.text) }));
  return { ...matrix, rows: all(matrix.rows), columns: all(matrix.columns) };
}

function plain(parts) {
  return parts.map((part) => part.word ?? part).join("");
}

/** A word as an element, so that its direction does not change the order of the others. */
function isolated(part) {
  if (part.word === undefined) return part;
  return Object.assign(document.createElement("bdi"), { textContent: part.word });
}

function text(id) {
  return $(id).selectedOptions[0]?.textContent ?? "";
}

/** A share from 0 to 1 for people. */
export function percent(share) {
  return `${Math.round(100 * share)} %`;
}

function fill(id, all, name, numbers, state) {
  const options = numbers.map((number) => new Option(`${name} ${number}`, String(number)));
  const select = $(id);
  select.replaceChildren(new Option(all, "mean"), ...options);
  if (!numbers.includes(Number(state[id]))) state[id] = "mean";
  select.value = state[id];
  select.disabled = !numbers.length;
}

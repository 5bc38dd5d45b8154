// Attention weights of a text and its translation. What is shown is fetched first: averages, or one
// head. The weights of all layers and heads may be a hundred times as much.

import { post } from "./api.js";
import { byWords, labelOf, matrixOf, mean, numbered, wordsOf } from "./matrix.js";

const FAILED_PRECONDITION = 9;
const KINDS = {
  cross: "ATTENTION_KIND_CROSS",
  encoder: "ATTENTION_KIND_ENCODER_SELF",
  decoder: "ATTENTION_KIND_DECODER_SELF",
};

/**
 * The attention of one pair. `pair` has sourceText, translatedText and the languages. What is chosen
 * of it has a `kind`, and as `layer` and `head` a number from 0, as text, or "mean".
 */
export class Attention {
  constructor(pair) {
    this.pair = pair;
    this.answers = new Map(); // by what was chosen
    this.grids = new Map(); // of all layers and heads of a kind
    this.isLimited = false; // the model only has the average that alignments come from
  }

  /** Fetch what is chosen. Returns what is there in its place if there is no such thing, and why. */
  async load(chosen, signal) {
    let [found, reason] = [{ ...chosen, ...this.#known(chosen) }, ""];
    while (!this.has(found)) {
      try {
        const answer = await this.#answerTo(found, signal);
        this.answers.set(keyOf(this.isLimited ? LIMITED : found), answer);
      } catch (error) {
        const other = replacement(found, error);
        if (!other) throw error;
        found = { ...found, ...other };
        reason = error.message;
      }
    }
    return { found: this.isLimited ? { ...found, ...LIMITED } : found, reason };
  }

  /** Fetch all layers and heads of a kind, which may be more than the server gives. */
  async loadAll(kind, signal) {
    if (!this.grids.has(kind)) this.grids.set(kind, await this.#fetch({ kinds: [KINDS[kind]] }, signal));
  }

  /** Whether this has been fetched. */
  has(chosen) {
    return this.isLimited || this.grids.has(chosen.kind) || this.answers.has(keyOf(chosen));
  }

  /** A choice without what no model has, or not this one; a link may have anything. */
  #known({ kind, layer, head }) {
    const known = kind in KINDS ? kind : "cross";
    const all = this.answers.size ? this.choices(known) : null; // else the server says
    const number = (value, numbers) =>
      /^\d{1,4}$/.test(value) && (numbers?.includes(Number(value)) ?? true) ? value : "mean";
    return { kind: known, layer: number(layer, all?.layers), head: number(head, all?.heads) };
  }

  async #answerTo(chosen, signal) {
    const { kind, layer, head } = chosen;
    const options = {
      kinds: [KINDS[kind]],
      ...(layer === "mean" ? { averageLayers: true } : { layers: [Number(layer)] }),
      ...(head === "mean" ? { averageHeads: true } : { heads: [Number(head)] }),
    };
    try {
      return await this.#fetch(options, signal);
    } catch (error) {
      if (error.code !== FAILED_PRECONDITION || kind !== "cross") throw error;
      return this.#alignment(error, signal);
    }
  }

  #fetch(options, signal) {
    return post("/v1/attention", { ...this.pair, options }, signal);
  }

  /** What there is of a model whose bundle has no attention weights. */
  async #alignment(error, signal) {
    const { sourceText, translatedText, ...languages } = this.pair;
    const options = { returnAlignments: "ALIGNMENT_KIND_SOFT" };
    const pairs = [{ sourceText, translatedText }];
    const answer = await post("/v1/score", { ...languages, pairs, options }, signal).catch((other) => {
      throw other.code === FAILED_PRECONDITION ? error : other; // says what to do for the weights
    });
    const [score] = answer.scores;
    if (!score.alignment) throw error;
    this.isLimited = true;
    return {
      translatedText,
      sourceTokens: score.sourceTokens,
      tokens: score.tokens,
      inputTokens: [],
      sourceWords: wordsOf(score.sourceTokens),
      words: wordsOf(score.tokens),
      matrices: [{ weights: score.alignment.rows.flatMap((row) => row.weights) }],
    };
  }

  /** The layers and heads of a kind that can be chosen. */
  choices(kind) {
    if (this.isLimited) return { layers: [], heads: [] };
    const [answer] = this.answers.values();
    const numLayers = kind === "encoder" ? answer.numEncoderLayers : answer.numDecoderLayers;
    return { layers: [...Array(numLayers).keys()], heads: [...Array(answer.numHeads).keys()] };
  }

  /** The weights that are chosen, which have been fetched, by "word" or "token". */
  matrix(chosen, unit) {
    const { kind, layer, head } = this.isLimited ? LIMITED : chosen;
    const single = this.answers.get(keyOf({ kind, layer, head }));
    const answer = single ?? this.grids.get(kind);
    const is = (value, wanted) => wanted === "mean" || value === Number(wanted);
    const parts = single
      ? single.matrices
      : answer.matrices.filter((each) => is(each.layer, layer) && is(each.head, head));
    const { rows, rowWords, ...side } = this.#sides(kind, answer);
    // Low-rank attention has a fixed number of columns, which are no tokens.
    const count = parts[0].numColumns ?? side.columns.length;
    const isNumbered = count !== side.columns.length;
    const { columns, columnWords } = isNumbered ? numbered(count) : side;
    const found = mean(parts.map((each) => matrixOf(rows, columns, each.weights)));
    return { ...(unit === "word" ? byWords(found, rowWords, columnWords) : found), isNumbered };
  }

  #sides(kind, answer) {
    const label = (text) => (token) => labelOf(token, text);
    const source = {
      labels: answer.sourceTokens.map(label(this.pair.sourceText)),
      words: answer.sourceWords,
    };
    const target = {
      labels: answer.tokens.map(label(this.pair.translatedText)),
      words: answer.words,
    };
    if (kind === "encoder" && !this.isLimited) return sidesOf(source, source);
    if (kind === "decoder" && !this.isLimited) {
      // What the decoder read: the token that begins every translation, then those before the last.
      const words = [-1, ...answer.words.slice(0, -1)];
      return sidesOf(target, { labels: answer.inputTokens.map(label(this.pair.translatedText)), words });
    }
    return sidesOf(target, source);
  }
}

const LIMITED = { kind: "cross", layer: "mean", head: "mean" };

function keyOf({ kind, layer, head }) {
  return `${kind} ${layer} ${head}`;
}

/** What to choose in place of what the server refuses; null if nothing. */
function replacement({ kind, layer, head }, { code, fields = [] }) {
  // The model has no such matrix; if it has none at all, that goes for cross-attention as well.
  if (code === FAILED_PRECONDITION && kind !== "cross") return { kind: "cross" };
  if (fields.includes("options.layers") && layer !== "mean") return { layer: "mean" };
  if (fields.includes("options.heads") && head !== "mean") return { head: "mean" };
  // Too many weights: of one layer, there are fewer.
  if (fields.includes("options") && layer === "mean") return { layer: "0" };
  return null;
}

function sidesOf(rows, columns) {
  return {
    rows: rows.labels, columns: columns.labels, rowWords: rows.words, columnWords: columns.words,
  };
}

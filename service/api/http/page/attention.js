// Attention weights of a text and its translation: fetched once for each kind, then chosen from.

import { post } from "./api.js";
import { byWords, groups, joined, labelOf, matrixOf, mean, wordsOf } from "./matrix.js";

const INVALID_ARGUMENT = 3;
const FAILED_PRECONDITION = 9;
const KINDS = {
  cross: "ATTENTION_KIND_CROSS",
  encoder: "ATTENTION_KIND_ENCODER_SELF",
  decoder: "ATTENTION_KIND_DECODER_SELF",
};

/** The attention of one pair. `pair` has sourceText, translatedText and the languages. */
export class Attention {
  constructor(pair) {
    this.pair = pair;
    this.kinds = new Map(); // the answer of each kind
    this.isLimited = false; // the model only has the average that alignments come from
  }

  /** Fetch a kind, if it isn't there yet. */
  async load(kind, signal) {
    if (this.kinds.has(kind) || this.isLimited) return;
    this.kinds.set(kind, await this.#answerTo(kind, signal));
  }

  async #answerTo(kind, signal) {
    try {
      return await this.#fetch(kind, {}, signal);
    } catch (error) {
      if (error.code === FAILED_PRECONDITION) return this.#alignment(error, signal);
      if (error.code !== INVALID_ARGUMENT) throw error;
    }
    return this.#fetch(kind, { averageHeads: true }, signal); // a long pair
  }

  #fetch(kind, options, signal) {
    const message = { ...this.pair, options: { kinds: [KINDS[kind]], ...options } };
    return post("/v1/attention", message, signal);
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
    const { matrices } = this.#answer(kind);
    const distinct = (name) =>
      [...new Set(matrices.map((each) => each[name]).filter((value) => value !== undefined))];
    return { layers: distinct("layer"), heads: distinct("head") };
  }

  #answer(kind) {
    return this.kinds.get(kind) ?? this.kinds.get("cross");
  }

  /** The weights of a layer and head, or "mean" of them, by "word" or "token". */
  matrix(kind, layer, head, unit) {
    const answer = this.#answer(kind);
    const { rows, columns, rowWords, columnWords } = this.#sides(kind, answer);
    const chosen = answer.matrices.filter(
      (each) => (layer === "mean" || each.layer === Number(layer)) && (head === "mean" || each.head === Number(head)),
    );
    const found = mean(chosen.map((each) => matrixOf(rows, columns, each.weights)));
    return unit === "word" ? byWords(found, rowWords, columnWords) : found;
  }

  /** The translation's words or tokens, with their probabilities. */
  translation(unit) {
    const answer = this.#answer("cross");
    const tokens = answer.tokens.map((token) => labelOf(token, this.pair.translatedText));
    if (unit === "token") return tokens;
    return groups(answer.words).map((group) => joined(group.map((place) => tokens[place])));
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

function sidesOf(rows, columns) {
  return {
    rows: rows.labels, columns: columns.labels, rowWords: rows.words, columnWords: columns.words,
  };
}

// Matrices of weights, with the labels of their rows and columns; and their sums over words.

/** Attention weights: `rows` and `columns` are labels, `weights[i][j]` is of row i and column j. */
export function matrixOf(rows, columns, flat) {
  const weights = rows.map((_, i) => flat.slice(i * columns.length, (i + 1) * columns.length));
  return { rows, columns, weights };
}

/** Labels from 1 for columns that are no tokens, each a word of its own. */
export function numbered(count) {
  const places = [...Array(count).keys()];
  const columns = places.map((place) => ({ text: String(place + 1), isSpecial: false }));
  return { columns, columnWords: places };
}

/** The mean of several of one shape. */
export function mean(matrices) {
  const [first] = matrices;
  const weights = first.weights.map((row, i) =>
    row.map((_, j) => matrices.reduce((sum, each) => sum + each.weights[i][j], 0) / matrices.length),
  );
  return { ...first, weights };
}

/**
 * The same by words: a column's weights are added, since a word gets what its tokens get; of rows, the
 * mean is taken, so that each still sums to one. `rowWords` and `columnWords` have a word's index for
 * each token.
 */
export function byWords(matrix, rowWords, columnWords) {
  const columnGroups = groups(columnWords);
  const rowGroups = groups(rowWords);
  const weights = rowGroups.map((rows) =>
    columnGroups.map((columns) => {
      let sum = 0;
      for (const i of rows) for (const j of columns) sum += matrix.weights[i][j];
      return sum / rows.length;
    }),
  );
  return {
    rows: rowGroups.map((group) => joined(group.map((i) => matrix.rows[i]))),
    columns: columnGroups.map((group) => joined(group.map((j) => matrix.columns[j]))),
    weights,
  };
}

/** The labels of tokens as that of their word; tokens without characters don't show in it. */
export function joined(labels) {
  const visible = labels.filter((label) => !label.isSpecial);
  return {
    text: (visible.length ? visible : labels).map((label) => label.text).join(""),
    // Of all tokens: the sum of logarithms.
    logProbability: labels.some((label) => label.logProbability === undefined)
      ? undefined
      : labels.reduce((sum, label) => sum + label.logProbability, 0),
    isSpecial: labels.every((label) => label.isSpecial),
  };
}

/** The places of each word's tokens. */
export function groups(words) {
  const found = [];
  words.forEach((word, place) => {
    if (place === 0 || word !== words[place - 1]) found.push([]);
    found[found.length - 1].push(place);
  });
  return found;
}

/** The label of a token: its characters in `text`, or its piece if it has none. */
export function labelOf(token, text) {
  const characters = Array.from(text).slice(token.start, token.end).join("");
  const piece = token.piece.replace(/^▁/, "");
  return {
    text: characters || (token.piece === "</s>" ? "⟨end⟩" : piece === "<s>" ? "⟨start⟩" : piece || "␣"),
    logProbability: token.logProbability,
    isSpecial: !characters,
  };
}

/** A word's index for each token, of pieces that begin a word with U+2581. */
export function wordsOf(tokens) {
  let word = -1;
  return tokens.map((token, place) => {
    if (place === 0 || token.piece.startsWith("▁") || token.start === token.end) word += 1;
    return word;
  });
}

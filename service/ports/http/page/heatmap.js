// Draws matrices on canvases.

const LABEL = '13px system-ui, "Noto Sans", sans-serif';
const MAX_LABEL = 150;
const GAP = 6;

/** The colours of the page, as it is shown now. */
export function theme() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return {
    stops: [of("--weight-0"), of("--weight-1"), of("--weight-2"), of("--weight-3")].map(rgb),
    text: of("--text"),
    faint: of("--faint"),
    line: of("--line"),
    accent: of("--mark"),
    background: of("--panel"),
  };
}

function rgb(hex) {
  return [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

/** The colour of a weight from 0 to 1. */
export function colour(weight, stops) {
  const place = Math.min(1, Math.max(0, weight)) * (stops.length - 1);
  const at = Math.min(Math.floor(place), stops.length - 2);
  const mixed = stops[at].map((low, i) => Math.round(low + (stops[at + 1][i] - low) * (place - at)));
  return `rgb(${mixed.join(" ")})`;
}

/** Where things are on a heat map of `matrix` that is to be `width` wide at most, if it can. */
export function layout(matrix, width) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = LABEL;
  const longest = (labels) =>
    Math.min(MAX_LABEL, Math.max(...labels.map((label) => context.measureText(label.text).width)));
  const left = Math.ceil(longest(matrix.rows)) + 2 * GAP;
  const slant = longest(matrix.columns);
  const top = Math.ceil(slant * Math.SQRT1_2) + 2 * GAP + 8;
  const right = Math.ceil(slant * Math.SQRT1_2) + GAP;
  const cell = Math.max(18, Math.min(36, Math.floor((width - left - right) / matrix.columns.length)));
  return {
    left, top, cell,
    width: left + cell * matrix.columns.length + right,
    height: top + cell * matrix.rows.length + GAP,
  };
}

/** Draw it. `marked` has `row` and `column`, each -1 for none; `flips` puts column 0 on the right. */
export function draw(canvas, matrix, { width, marked, flips, scale, caption }) {
  const place = layout(matrix, width);
  const colours = theme();
  const captionHeight = caption ? 30 : 0;
  size(canvas, place.width, place.height + captionHeight, scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.fillStyle = colours.background;
  context.fillRect(0, 0, place.width, place.height + captionHeight);
  cells(context, matrix, place, colours, flips);
  labels(context, matrix, place, colours, marked, flips);
  marks(context, matrix, place, colours, marked, flips);
  if (caption) {
    context.font = LABEL;
    context.textAlign = "left";
    context.fillStyle = colours.faint;
    context.fillText(caption, GAP, place.height + 16);
  }
}

function size(canvas, width, height, scale) {
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.setProperty("width", `${width}px`);
  canvas.style.setProperty("height", `${height}px`);
}

function x(column, matrix, place, flips) {
  return place.left + place.cell * (flips ? matrix.columns.length - 1 - column : column);
}

function cells(context, matrix, place, colours, flips) {
  matrix.weights.forEach((row, i) => {
    row.forEach((weight, j) => {
      context.fillStyle = colour(weight, colours.stops);
      context.fillRect(
        x(j, matrix, place, flips), place.top + i * place.cell, place.cell - 1, place.cell - 1,
      );
    });
  });
}

function labels(context, matrix, place, colours, marked, flips) {
  context.font = LABEL;
  context.textBaseline = "middle";
  context.textAlign = "right";
  matrix.rows.forEach((label, i) => {
    context.fillStyle = i === marked.row ? colours.accent : label.isSpecial ? colours.faint : colours.text;
    const y = place.top + (i + 0.5) * place.cell;
    context.fillText(clipped(context, label.text), place.left - GAP, y);
  });
  context.textAlign = "left";
  matrix.columns.forEach((label, j) => {
    context.save();
    context.translate(x(j, matrix, place, flips) + place.cell / 2, place.top - GAP);
    context.rotate(-Math.PI / 4);
    context.fillStyle = j === marked.column ? colours.accent : label.isSpecial ? colours.faint : colours.text;
    context.fillText(clipped(context, label.text), 0, 0);
    context.restore();
  });
}

function clipped(context, text) {
  if (context.measureText(text).width <= MAX_LABEL) return text;
  const characters = Array.from(text);
  while (characters.length && context.measureText(`${characters.join("")}…`).width > MAX_LABEL) {
    characters.pop();
  }
  return `${characters.join("")}…`;
}

function marks(context, matrix, place, colours, marked, flips) {
  context.strokeStyle = colours.accent;
  context.lineWidth = 2;
  const across = place.cell * matrix.columns.length;
  const down = place.cell * matrix.rows.length;
  if (marked.row >= 0) {
    context.strokeRect(place.left - 1, place.top + marked.row * place.cell - 1, across + 1, place.cell + 1);
  }
  if (marked.column >= 0) {
    context.strokeRect(x(marked.column, matrix, place, flips) - 1, place.top - 1, place.cell + 1, down + 1);
  }
}

/** The row and column at a point of the canvas, in CSS pixels; null beside the cells. */
export function cellAt(matrix, width, flips, point) {
  const place = layout(matrix, width);
  const row = Math.floor((point.y - place.top) / place.cell);
  let column = Math.floor((point.x - place.left) / place.cell);
  if (row < 0 || column < 0 || row >= matrix.rows.length || column >= matrix.columns.length) return null;
  if (flips) column = matrix.columns.length - 1 - column;
  return { row, column };
}

/** Draw it small, a few pixels a cell. */
export function drawSmall(canvas, matrix, flips) {
  const { stops } = theme();
  const [numRows, numColumns] = [matrix.rows.length, matrix.columns.length];
  const cell = Math.max(2, Math.floor(88 / Math.max(numRows, numColumns)));
  canvas.width = cell * numColumns;
  canvas.height = cell * numRows;
  const context = canvas.getContext("2d");
  matrix.weights.forEach((row, i) => {
    row.forEach((weight, j) => {
      context.fillStyle = colour(weight, stops);
      context.fillRect(cell * (flips ? numColumns - 1 - j : j), cell * i, cell, cell);
    });
  });
}

/** Draw the scale of colours. */
export function drawScale(canvas) {
  const { stops } = theme();
  const context = canvas.getContext("2d");
  for (let at = 0; at < canvas.width; at += 1) {
    context.fillStyle = colour(at / canvas.width, stops);
    context.fillRect(at, 0, 1, canvas.height);
  }
}

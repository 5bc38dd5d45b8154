// Labels of characters that can't be seen.

const INVISIBLE = /^[\p{Cc}\p{Cf}\p{Z}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe00-\ufe0f\uffa0]+$/u;
const NAMES = new Map([
  ["\t", "tab"], ["\n", "line break"], [" ", "space"], ["\u00a0", "no-break space"], ["\u00ad", "soft hyphen"],
  ["\u200b", "zero-width space"], ["\u200c", "zero-width non-joiner"], ["\u200d", "zero-width joiner"],
  ["\u200e", "left-to-right mark"], ["\u200f", "right-to-left mark"], ["\u2060", "word joiner"],
  ["\ufeff", "byte order mark"],
]);

/** The text; if none of its characters can be seen, their names. */
export function visible(text) {
  if (!INVISIBLE.test(text)) return text;
  return Array.from(text, (character) => `⟨${NAMES.get(character) ?? code(character)}⟩`).join("");
}

function code(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

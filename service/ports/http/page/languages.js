// Languages: which directions there are, their names, and the direction of their script.

const names = new Intl.DisplayNames([...navigator.languages, "en"], { type: "language" });
const RIGHT_TO_LEFT = new Set(["ar", "arc", "ckb", "dv", "fa", "he", "ks", "ps", "sd", "ug", "ur", "yi"]);

/** The name of a BCP-47 code in the reader's language. */
export function nameOf(code) {
  try {
    return names.of(code) ?? code;
  } catch {
    return code; // no BCP-47 code
  }
}

/** "rtl" or "ltr". */
export function directionOf(code) {
  try {
    const locale = new Intl.Locale(code);
    const direction = (locale.getTextInfo?.() ?? locale.textInfo)?.direction;
    return direction ?? (RIGHT_TO_LEFT.has(locale.language) ? "rtl" : "ltr");
  } catch {
    return "ltr";
  }
}

/** The directions of the groups of ListLanguages. */
export class Directions {
  constructor(groups) {
    this.groups = groups;
    this.sources = [...new Set(groups.flatMap((group) => group.sourceLanguageCodes))];
  }

  /** The languages that one model translates `source` into. */
  targets(source) {
    const found = this.groups
      .filter((group) => group.sourceLanguageCodes.includes(source))
      .flatMap((group) => group.targetLanguageCodes);
    return [...new Set(found)].filter((code) => code !== source);
  }

  /** The languages that two models translate it into, one after the other. */
  further(source) {
    const direct = this.targets(source);
    const found = direct.flatMap((code) => this.targets(code));
    return [...new Set(found)].filter((code) => code !== source && !direct.includes(code));
  }

  /** Whether `source` can be translated into `target`. */
  has(source, target) {
    return this.targets(source).includes(target) || this.further(source).includes(target);
  }
}

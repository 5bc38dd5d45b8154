// Uses DeepL's client for Node, and prints what it gets. Argument: the server's URL.
import * as deepl from "deepl-node";

const client = new deepl.DeepLClient("any", { serverUrl: process.argv[2] });
const texts = ["A dog is running.", "Two men are playing chess."];
const results = await client.translateText(texts, null, "de");
const sources = await client.getSourceLanguages();
const usage = await client.getUsage();

const entries = new deepl.GlossaryEntries({ entries: { dog: "Köter", book: "Büchlein" } });
const made = await client.createGlossary("animals", "en", "de", entries);
const found = await client.getGlossaryEntries(made);
if (made.entryCount !== 2 || found.entries().dog !== "Köter") throw new Error("entries");
if ((await client.listGlossaries()).length !== 1) throw new Error("list");
await client.translateText(texts[0], "en", "de", { glossary: made });
await client.deleteGlossary(made);
const dictionary = { sourceLangCode: "en", targetLangCode: "de", entries };
const several = await client.createMultilingualGlossary("all", [dictionary]);
await client.translateText(texts[0], "en", "de", { glossary: several.glossaryId });
await client.deleteMultilingualGlossary(several);
if ((await client.listMultilingualGlossaries()).length !== 0) throw new Error("deleted");

console.log(
  JSON.stringify({
    texts: results.map((result) => result.text),
    detected: results[0].detectedSourceLang,
    sources: sources.map((language) => language.code),
    used: usage.character.count,
  }),
);

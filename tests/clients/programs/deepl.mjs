// Uses DeepL's client for Node, and prints what it gets. Argument: the server's URL.
import * as deepl from "deepl-node";

const client = new deepl.DeepLClient("any", { serverUrl: process.argv[2] });
const texts = ["A dog is running.", "Two men are playing chess."];
const results = await client.translateText(texts, null, "de");
const sources = await client.getSourceLanguages();
const usage = await client.getUsage();
console.log(
  JSON.stringify({
    texts: results.map((result) => result.text),
    detected: results[0].detectedSourceLang,
    sources: sources.map((language) => language.code),
    used: usage.character.count,
  }),
);

// Translates lines of standard input with Firefox's engine: node browser_engine.mjs REGISTRY_URL
import { readFileSync } from "node:fs";
import { BatchTranslator } from "@browsermt/bergamot-translator/translator.js";

const translator = new BatchTranslator({ registryUrl: process.argv[2], workers: 1, batchSize: 1 });
const found = [];
for (const text of readFileSync(0, "utf-8").split("\n")) {
  const answer = await translator.translate({ from: "en", to: "de", text, html: false });
  found.push(answer.target.text);
}
console.log(JSON.stringify(found));
await translator.delete();
process.exit(0);

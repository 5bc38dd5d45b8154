"""Uses DeepL's client for Python, and prints what it gets. Argument: the server's URL."""

import json
import sys

import deepl

client = deepl.DeepLClient("any", server_url=sys.argv[1])
texts = ["A dog is running.", "Two men are playing chess."]
results = client.translate_text(texts, target_lang="DE", formality="prefer_more", context="games")
assert isinstance(results, list)
marked = client.translate_text('A <x id="7"></x> dog.', target_lang="DE", tag_handling="xml")
assert not isinstance(marked, list)
assert marked.text.count('<x id="7"></x>') == 1
try:
    client.translate_text("x", target_lang="JA")
    error = ""
except deepl.DeepLException as exc:
    error = str(exc)
print(
    json.dumps(
        {
            "texts": [result.text for result in results],
            "detected": results[0].detected_source_lang.lower(),
            "sources": [language.code.lower() for language in client.get_source_languages()],
            "targets": [language.code.lower() for language in client.get_target_languages()],
            "used": client.get_usage().character.count,
            "error": error,
        }
    )
)

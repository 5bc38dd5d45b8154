"""Uses LibreTranslate's client for Python, and prints what it gets. Argument: the server's URL."""

import json
import sys

from libretranslatepy import LibreTranslateAPI

client = LibreTranslateAPI(sys.argv[1])
texts = ["A dog is running.", "Two men are playing chess."]
print(
    json.dumps(
        {
            "texts": [client.translate(text, "en", "de") for text in texts],
            "detected": client.detect("Two men are playing chess.")[0]["language"],
            "sources": [each["code"] for each in client.languages() if each["targets"]],
        }
    )
)

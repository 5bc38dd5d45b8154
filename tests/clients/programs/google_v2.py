"""Uses version 2 of Google's client for Python, and prints what it gets. Argument: the URL."""

import json
import sys

from google.api_core.exceptions import GoogleAPIError
from google.auth.credentials import AnonymousCredentials
from google.cloud import translate_v2

client = translate_v2.Client(
    credentials=AnonymousCredentials(), client_options={"api_endpoint": sys.argv[1]}
)
texts = ["A dog is running.", "Two men are playing chess."]
results = client.translate(texts, target_language="de")
try:
    client.translate("x", target_language="ja")
    error = ""
except GoogleAPIError as exc:
    error = str(exc)
print(
    json.dumps(
        {
            "texts": [result["translatedText"] for result in results],
            "detected": client.detect_language("Two men are playing chess.")["language"],
            "languages": [language["language"] for language in client.get_languages()],
            "error": error,
        }
    )
)

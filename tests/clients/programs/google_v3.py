"""Uses version 3 of Google's client for Python, and prints what it gets.

Arguments: "grpc" and HOST:PORT, or "rest" and a URL.
"""

import json
import sys

import grpc
from google.api_core.exceptions import GoogleAPIError
from google.auth.credentials import AnonymousCredentials
from google.cloud import translate_v3
from google.cloud.translate_v3.services.translation_service import transports

kind, address = sys.argv[1:]
if kind == "grpc":
    channel = grpc.insecure_channel(address)
    client = translate_v3.TranslationServiceClient(
        transport=transports.TranslationServiceGrpcTransport(channel=channel)
    )
else:
    client = translate_v3.TranslationServiceClient(
        transport="rest",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": address},
    )
parent = "projects/any/locations/global"
texts = ["A dog is running.", "Two men are playing chess."]
request = {
    "parent": parent,
    "contents": texts,
    "target_language_code": "de",
    "labels": {"a": "b"},
}
results = client.translate_text(request=request).translations
glossary = {"glossary": f"{parent}/glossaries/house"}
with_terms = client.translate_text(
    request={**request, "source_language_code": "en", "glossary_config": glossary}
)
assert len(with_terms.glossary_translations) == len(with_terms.translations) == 2
found = client.detect_language(parent=parent, content="Two men are playing chess.").languages
languages = client.get_supported_languages(parent=parent, display_language_code="en").languages
try:
    client.translate_text(request={**request, "target_language_code": "ja"})
    error = ""
except GoogleAPIError as exc:
    error = str(exc)
print(
    json.dumps(
        {
            "texts": [result.translated_text for result in results],
            "detected": found[0].language_code,
            "languages": [language.language_code for language in languages],
            "names": [language.display_name for language in languages],
            "error": error,
        }
    )
)

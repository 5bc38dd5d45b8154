"""Uses DeepL's client for Python, and prints what it gets. Argument: the server's URL."""

import json
import sys

import deepl
from deepl.api_data import MultilingualGlossaryDictionaryEntries

client = deepl.DeepLClient("any", server_url=sys.argv[1])
texts = ["A dog is running.", "Two men are playing chess."]
results = client.translate_text(texts, target_lang="DE", formality="prefer_more", context="games")
assert isinstance(results, list)
marked = client.translate_text('A <x id="7"></x> dog.', target_lang="DE", tag_handling="xml")
assert not isinstance(marked, list)
assert marked.text.count('<x id="7"></x>') == 1
entries = {"dog": "Köter", "book": "Büchlein"}
made = client.create_glossary("animals", "EN", "DE", entries)
assert (made.entry_count, made.ready, made.name) == (2, True, "animals")
assert client.get_glossary(made.glossary_id).creation_time == made.creation_time
assert [each.glossary_id for each in client.list_glossaries()] == [made.glossary_id]
assert client.get_glossary_entries(made) == entries
[pair] = client.get_glossary_languages()
assert (pair.source_lang.upper(), pair.target_lang.upper()) == ("EN", "DE")
for glossary in (made, made.glossary_id):
    with_terms = client.translate_text(
        "A dog.", source_lang="EN", target_lang="DE", glossary=glossary
    )
    assert not isinstance(with_terms, list)
client.delete_glossary(made)
try:
    client.get_glossary(made.glossary_id)
    raise AssertionError("it is there")
except deepl.GlossaryNotFoundException:
    pass
from_csv = client.create_glossary_from_csv("csv", "EN", "DE", "dog,Hund\n")
assert from_csv.entry_count == 1
client.delete_glossary(from_csv)

several = client.create_multilingual_glossary(
    "all", [MultilingualGlossaryDictionaryEntries("EN", "DE", entries)]
)
assert several.dictionaries[0].entry_count == 2
more = MultilingualGlossaryDictionaryEntries("EN", "DE", {"cat": "Katze"})
changed = client.update_multilingual_glossary_dictionary(several, more)
assert changed.dictionaries[0].entry_count == 3
assert client.update_multilingual_glossary_name(several, "terms").name == "terms"
assert client.replace_multilingual_glossary_dictionary(several, more).entry_count == 1
found = client.get_multilingual_glossary_entries(several, "EN", "DE")
assert "Katze" in str(found.dictionaries[0].entries)
assert [each.name for each in client.list_multilingual_glossaries()] == ["terms"]
client.translate_text("A cat.", source_lang="EN", target_lang="DE", glossary=several)
client.delete_multilingual_glossary_dictionary(several, source_lang="EN", target_lang="DE")
client.delete_multilingual_glossary(several)
assert client.list_multilingual_glossaries() == []
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

"""Glossaries in DeepL's API: version 2, of one pair of languages, and version 3, of several.

A glossary is its owner's: of the tenant of the key, of the key, or, on a server without keys,
everyone's.
"""

from __future__ import annotations

import datetime
from typing import Any

from model.bundle.languages import is_language_code
from service.calls.glossaries import glossary_owner, is_pair_served
from service.calls.languages import reachable_targets
from service.errors import InvalidArgumentError, NotFoundError
from service.fronts.http.fields import Fields
from service.fronts.http.front_endpoint import FrontAnswer, FrontCall, Operation
from service.text.glossaries.entries import FORMATS
from service.text.glossaries.stored_glossary import GlossaryText, StoredDictionary, StoredGlossary

_TSV = "text/tab-separated-values; charset=utf-8"
_LANGUAGES = {
    "source_lang": "the language of the terms",
    "target_lang": "the language of their translations",
}
_DICTIONARY = {
    **_LANGUAGES,
    "entries": "a term and its translation in each line",
    "entries_format": "tsv or csv",
}
_NAME = {"name": "of the glossary"}
_SEVERAL = {"dictionaries": "a list of objects with source_lang, target_lang, entries"}


async def _create(fields: Fields, call: FrontCall) -> Any:
    made = await call.backend.glossary_store.create(
        glossary_owner(), fields.needed("name"), [_given(fields, call)]
    )
    return FrontAnswer(_described(made), 201)


async def _list(fields: Fields, call: FrontCall) -> Any:
    found = await call.backend.glossary_store.glossaries(glossary_owner())
    return {"glossaries": [_described(each) for each in found if len(each.dictionaries) == 1]}


async def _get(fields: Fields, call: FrontCall) -> Any:
    return _described(await _single(call))


async def _entries(fields: Fields, call: FrontCall) -> Any:
    found = await _single(call)
    [dictionary] = found.dictionaries
    pair = dictionary.source, dictionary.target
    text = await call.backend.glossary_store.entries(glossary_owner(), found.id, *pair)
    return FrontAnswer(text.encode(), kind=_TSV)


async def _delete(fields: Fields, call: FrontCall) -> Any:
    await call.backend.glossary_store.delete(glossary_owner(), call.path["id"])
    return FrontAnswer(b"", 204)


async def _pairs(fields: Fields, call: FrontCall) -> Any:
    pairs = [
        {"source_lang": source, "target_lang": target}
        for source, targets in reachable_targets(call.backend).items()
        for target in targets
    ]
    return {"supported_languages": pairs}


async def _create_several(fields: Fields, call: FrontCall) -> Any:
    dictionaries = _given_several(fields, call)
    made = await call.backend.glossary_store.create(
        glossary_owner(), fields.needed("name"), dictionaries
    )
    return FrontAnswer(_described_several(made), 201)


async def _list_several(fields: Fields, call: FrontCall) -> Any:
    found = await call.backend.glossary_store.glossaries(glossary_owner())
    return {"glossaries": [_described_several(each) for each in found]}


async def _get_several(fields: Fields, call: FrontCall) -> Any:
    return _described_several(
        await call.backend.glossary_store.get(glossary_owner(), call.path["id"])
    )


async def _change(fields: Fields, call: FrontCall) -> Any:
    """Another name, or further entries of one pair of languages."""
    owner, glossary_id = glossary_owner(), call.path["id"]
    dictionaries = _given_several(fields, call)
    if len(dictionaries) > 1:
        raise InvalidArgumentError("dictionaries", "more than one, the limit of a change")
    for dictionary in dictionaries:
        await call.backend.glossary_store.put(owner, glossary_id, dictionary, merges=True)
    if "name" in fields:
        await call.backend.glossary_store.rename(owner, glossary_id, fields.needed("name"))
    return _described_several(await call.backend.glossary_store.get(owner, glossary_id))


async def _entries_of_pair(fields: Fields, call: FrontCall) -> Any:
    source, target = _languages(fields)
    text = await call.backend.glossary_store.entries(
        glossary_owner(), call.path["id"], source, target
    )
    languages = {"source_lang": source, "target_lang": target}
    return {"dictionaries": [{**languages, "entries": text, "entries_format": "tsv"}]}


async def _replace_dictionary(fields: Fields, call: FrontCall) -> Any:
    given = _given(fields, call)
    made = await call.backend.glossary_store.put(
        glossary_owner(), call.path["id"], given, merges=False
    )
    pair = given.source, given.target
    return next(_counted(each) for each in made.dictionaries if (each.source, each.target) == pair)


async def _delete_dictionary(fields: Fields, call: FrontCall) -> Any:
    await call.backend.glossary_store.delete_dictionary(
        glossary_owner(), call.path["id"], *_languages(fields)
    )
    return FrontAnswer(b"", 204)


def _operation(handler: Any, summary: str, parameters: dict[str, str] | None = None) -> Operation:
    # Counted as Translate: who may translate with a glossary may make one.
    return Operation("Translate", handler, summary, parameters or {})


GLOSSARY_OPERATIONS = {
    ("GET", "/v2/glossary-language-pairs"): _operation(_pairs, "List the languages of glossaries"),
    ("POST", "/v2/glossaries"): _operation(_create, "Make a glossary", {**_NAME, **_DICTIONARY}),
    ("GET", "/v2/glossaries"): _operation(_list, "List glossaries"),
    ("GET", "/v2/glossaries/{id}"): _operation(_get, "Describe a glossary"),
    ("DELETE", "/v2/glossaries/{id}"): _operation(_delete, "Remove a glossary"),
    ("GET", "/v2/glossaries/{id}/entries"): _operation(_entries, "List entries"),
    ("POST", "/v3/glossaries"): _operation(
        _create_several, "Make a glossary of several pairs of languages", {**_NAME, **_SEVERAL}
    ),
    ("GET", "/v3/glossaries"): _operation(_list_several, "List glossaries"),
    ("GET", "/v3/glossaries/{id}"): _operation(_get_several, "Describe a glossary"),
    ("PATCH", "/v3/glossaries/{id}"): _operation(
        _change, "Rename a glossary, or add entries", {**_NAME, **_SEVERAL}
    ),
    ("DELETE", "/v3/glossaries/{id}"): _operation(_delete, "Remove a glossary"),
    ("GET", "/v3/glossaries/{id}/entries"): _operation(
        _entries_of_pair, "List the entries of a pair of languages", _LANGUAGES
    ),
    ("PUT", "/v3/glossaries/{id}/dictionaries"): _operation(
        _replace_dictionary, "Set the entries of a pair of languages", _DICTIONARY
    ),
    ("DELETE", "/v3/glossaries/{id}/dictionaries"): _operation(
        _delete_dictionary, "Remove the entries of a pair of languages", _LANGUAGES
    ),
}
"""By HTTP method and path."""


async def _single(call: FrontCall) -> StoredGlossary:
    """A glossary that version 2 has. Raises NotFoundError."""
    found = await call.backend.glossary_store.get(glossary_owner(), call.path["id"])
    if len(found.dictionaries) != 1:
        raise NotFoundError("the glossary has not one pair of languages: ask /v3/glossaries")
    return found


def _languages(fields: Fields) -> tuple[str, str]:
    """The languages of a dictionary, in lower case. Raises InvalidArgumentError."""
    found = []
    for name in _LANGUAGES:
        code = fields.needed(name)
        if not is_language_code(code):
            raise InvalidArgumentError(name, f"no language: {code[:20]!r}")
        found.append(code.lower())
    return found[0], found[1]


def _given(fields: Fields, call: FrontCall, field: str = "") -> GlossaryText:
    """A dictionary. Raises InvalidArgumentError."""
    source, target = _languages(fields)
    if not is_pair_served(call.backend, source, target):
        raise InvalidArgumentError("target_lang", f"no model translates {source} to {target}")
    form = fields.choice("entries_format", FORMATS, "tsv")
    return GlossaryText(source, target, fields.needed("entries"), form, f"{field}entries")


def _given_several(fields: Fields, call: FrontCall) -> list[GlossaryText]:
    return [
        _given(each, call, f"dictionaries[{index}].")
        for index, each in enumerate(fields.objects("dictionaries"))
    ]


def _counted(dictionary: StoredDictionary) -> dict[str, Any]:
    return {
        "source_lang": dictionary.source,
        "target_lang": dictionary.target,
        "entry_count": dictionary.num_entries,
    }


def _named(glossary: StoredGlossary) -> dict[str, Any]:
    made = datetime.datetime.fromtimestamp(glossary.created, datetime.UTC)
    created = made.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {"glossary_id": glossary.id, "name": glossary.name, "creation_time": created}


def _described(glossary: StoredGlossary) -> dict[str, Any]:
    """As version 2 has it: of one pair of languages."""
    [dictionary] = glossary.dictionaries
    return {**_named(glossary), "ready": True, **_counted(dictionary)}


def _described_several(glossary: StoredGlossary) -> dict[str, Any]:
    dictionaries = [_counted(each) for each in glossary.dictionaries]
    return {**_named(glossary), "dictionaries": dictionaries}

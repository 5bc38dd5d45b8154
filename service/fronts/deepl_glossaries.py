"""Glossaries in DeepL's API.

In version 2, a glossary has one pair of languages; in version 3, it has several. A glossary belongs
to the tenant of a key, or to the key; on a server without keys, it belongs to everyone.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from model.bundle.languages import is_language_code
from service.calls.glossaries import glossary_owner, is_pair_served
from service.calls.languages import reachable_targets
from service.errors import InvalidArgumentError, NotFoundError
from service.fronts.http.fields import Fields
from service.fronts.http.front_endpoint import Front, FrontAnswer, FrontCall, T, operation
from service.glossaries.entries import FORMATS
from service.glossaries.store import GlossaryStore
from service.glossaries.stored_glossary import GlossaryText, StoredDictionary, StoredGlossary

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
_V2, _V3 = "/v2/glossaries", "/v3/glossaries"
_ONE = f"{_V3}/{{id}}/dictionaries"
_NAME = {"name": "of the glossary"}
_SEVERAL = {"dictionaries": "a list of objects with source_lang, target_lang, entries"}


def _operation(verb: str, path: str, summary: str, *parameters: dict[str, str]) -> Callable[[T], T]:
    # Counted as Translate: a key that may translate with a glossary may make one.
    return operation(verb, path, "Translate", summary, *parameters)


class DeepLGlossaries(Front):
    """The part of DeepL's front for glossaries."""

    @_operation("GET", "/v2/glossary-language-pairs", "List the languages of glossaries")
    async def _pairs(self, fields: Fields, call: FrontCall) -> Any:
        pairs = [
            {"source_lang": source, "target_lang": target}
            for source, targets in reachable_targets(call.backend).items()
            for target in targets
        ]
        return {"supported_languages": pairs}

    @_operation("POST", _V2, "Make a glossary", {**_NAME, **_DICTIONARY})
    async def _create(self, fields: Fields, call: FrontCall) -> Any:
        name, given = fields.needed("name"), _given(fields, call)
        made = await _store(call).create(glossary_owner(), name, [given])
        return FrontAnswer(_described(made), 201)

    @_operation("GET", _V2, "List glossaries")
    async def _list(self, fields: Fields, call: FrontCall) -> Any:
        found = await _store(call).glossaries(glossary_owner())
        return {"glossaries": [_described(each) for each in found if len(each.dictionaries) == 1]}

    @_operation("GET", f"{_V2}/{{id}}", "Describe a glossary")
    async def _get(self, fields: Fields, call: FrontCall) -> Any:
        return _described(await _single(call))

    @_operation("DELETE", f"{_V2}/{{id}}", "Remove a glossary")
    async def _delete(self, fields: Fields, call: FrontCall) -> Any:
        await _store(call).delete(glossary_owner(), call.path["id"])
        return FrontAnswer(b"", 204)

    @_operation("GET", f"{_V2}/{{id}}/entries", "List entries")
    async def _entries(self, fields: Fields, call: FrontCall) -> Any:
        found = await _single(call)
        [dictionary] = found.dictionaries
        pair = dictionary.source, dictionary.target
        text = await _store(call).entries(glossary_owner(), found.id, *pair)
        return FrontAnswer(text.encode(), kind=_TSV)

    @_operation("POST", _V3, "Make a glossary of several pairs of languages", {**_NAME, **_SEVERAL})
    async def _create_several(self, fields: Fields, call: FrontCall) -> Any:
        dictionaries = _given_several(fields, call)
        made = await _store(call).create(glossary_owner(), fields.needed("name"), dictionaries)
        return FrontAnswer(_described_several(made), 201)

    @_operation("GET", _V3, "List glossaries")
    async def _list_several(self, fields: Fields, call: FrontCall) -> Any:
        found = await _store(call).glossaries(glossary_owner())
        return {"glossaries": [_described_several(each) for each in found]}

    @_operation("GET", f"{_V3}/{{id}}", "Describe a glossary")
    async def _get_several(self, fields: Fields, call: FrontCall) -> Any:
        return _described_several(await _store(call).get(glossary_owner(), call.path["id"]))

    @_operation(
        "PATCH", f"{_V3}/{{id}}", "Rename a glossary, or add entries", {**_NAME, **_SEVERAL}
    )
    async def _change(self, fields: Fields, call: FrontCall) -> Any:
        """Rename a glossary, or add entries for one pair of languages."""
        owner, glossary_id = glossary_owner(), call.path["id"]
        dictionaries = _given_several(fields, call)
        if len(dictionaries) > 1:
            raise InvalidArgumentError("dictionaries", "more than one, the limit of a change")
        for dictionary in dictionaries:
            await _store(call).put(owner, glossary_id, dictionary, merges=True)
        if "name" in fields:
            await _store(call).rename(owner, glossary_id, fields.needed("name"))
        return _described_several(await _store(call).get(owner, glossary_id))

    @_operation("DELETE", f"{_V3}/{{id}}", "Remove a glossary")
    async def _delete_several(self, fields: Fields, call: FrontCall) -> Any:
        return await self._delete(fields, call)

    @_operation(
        "GET", f"{_V3}/{{id}}/entries", "List the entries of a pair of languages", _LANGUAGES
    )
    async def _entries_of_pair(self, fields: Fields, call: FrontCall) -> Any:
        source, target = _languages(fields)
        text = await _store(call).entries(glossary_owner(), call.path["id"], source, target)
        languages = {"source_lang": source, "target_lang": target}
        return {"dictionaries": [{**languages, "entries": text, "entries_format": "tsv"}]}

    @_operation("PUT", _ONE, "Set the entries of a pair of languages", _DICTIONARY)
    async def _replace_dictionary(self, fields: Fields, call: FrontCall) -> Any:
        given = _given(fields, call)
        made = await _store(call).put(glossary_owner(), call.path["id"], given, merges=False)
        pair = given.source, given.target
        found = (each for each in made.dictionaries if (each.source, each.target) == pair)
        return _counted(next(found))

    @_operation("DELETE", _ONE, "Remove the entries of a pair of languages", _LANGUAGES)
    async def _delete_dictionary(self, fields: Fields, call: FrontCall) -> Any:
        pair = _languages(fields)
        await _store(call).delete_dictionary(glossary_owner(), call.path["id"], *pair)
        return FrontAnswer(b"", 204)


def _store(call: FrontCall) -> GlossaryStore:
    return call.backend.glossary_store


async def _single(call: FrontCall) -> StoredGlossary:
    """The glossary that the path names, if it has one pair of languages. Raises NotFoundError."""
    found = await _store(call).get(glossary_owner(), call.path["id"])
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
    """The description of a glossary in version 2, with one pair of languages."""
    [dictionary] = glossary.dictionaries
    return {**_named(glossary), "ready": True, **_counted(dictionary)}


def _described_several(glossary: StoredGlossary) -> dict[str, Any]:
    dictionaries = [_counted(each) for each in glossary.dictionaries]
    return {**_named(glossary), "dictionaries": dictionaries}

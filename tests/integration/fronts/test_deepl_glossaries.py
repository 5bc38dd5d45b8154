"""Glossaries in DeepL's API, on a real port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.client import Glossary
from service.settings import shipped_models
from tests.integration.fronts.conftest import Serving
from tests.integration.http_client import Answer, ask, post
from tests.integration.keyed import KeyFile
from tests.integration.servers import Running, running_bundle

V2, V3, TRANSLATE = "/v2/glossaries", "/v3/glossaries", "/v2/translate"
TEXT = "The dog reads a book."
ENTRIES = "dog\tKöter\nbook\tBüchlein"
MADE = {"name": "animals", "source_lang": "EN", "target_lang": "DE", "entries": ENTRIES}


@pytest.fixture
async def shipped(tmp_path: Path) -> AsyncIterator[Running]:
    (tmp_path / "house.en-de.tsv").write_text("dog\tHündchen\n")
    settings: dict[str, Any] = {"http_port": 0, "glossary_dir": (tmp_path,)}
    async with running_bundle(*shipped_models(), **settings) as made:
        yield made


async def translated(server: Running, glossary: str, **fields: Any) -> Answer:
    body = {"text": [TEXT], "source_lang": "EN", "target_lang": "DE", "glossary_id": glossary}
    return await post(server, TRANSLATE, {**body, **fields})


async def test_a_glossary_is_made_and_used(shipped: Running) -> None:
    made = await post(shipped, V2, {**MADE, "entries_format": "tsv"})
    assert made.status == 201
    found = made.json
    glossary_id = found["glossary_id"]
    assert (found["name"], found["ready"], found["entry_count"]) == ("animals", True, 2)
    assert (found["source_lang"], found["target_lang"]) == ("en", "de")
    own = await shipped.client.translate(
        [TEXT], source="en", target="de", glossary=Glossary({"dog": "Köter", "book": "Büchlein"})
    )
    answer = await translated(shipped, glossary_id)
    assert answer.json["translations"][0]["text"] == own.translations[0].text
    detected = await translated(shipped, glossary_id, source_lang=None)
    assert detected.json["translations"][0]["text"] == own.translations[0].text
    # The ids are valid names in our own calls, and names of our glossaries are valid ids.
    named = Glossary(name=glossary_id)
    again = await shipped.client.translate([TEXT], source="en", target="de", glossary=named)
    assert again.translations[0].text == own.translations[0].text
    file = await shipped.client.translate(
        [TEXT], source="en", target="de", glossary=Glossary(name="house")
    )
    answer = await translated(shipped, "house")
    assert answer.json["translations"][0]["text"] == file.translations[0].text

    assert (await ask(shipped, "GET", V2)).json == {"glossaries": [found]}
    assert (await ask(shipped, "GET", f"{V2}/{glossary_id}")).json == found
    entries = await ask(shipped, "GET", f"{V2}/{glossary_id}/entries")
    assert entries.headers["content-type"].startswith("text/tab-separated-values")
    assert entries.body.decode() == ENTRIES
    deleted = await ask(shipped, "DELETE", f"{V2}/{glossary_id}")
    assert (deleted.status, deleted.body) == (204, b"")
    assert (await ask(shipped, "GET", f"{V2}/{glossary_id}")).status == 404
    assert (await ask(shipped, "DELETE", f"{V2}/{glossary_id}")).status == 404
    gone = await translated(shipped, glossary_id)
    assert (gone.status, gone.json["message"]) == (400, "glossary_id: no such glossary")


async def test_several_pairs_of_languages(server: Running) -> None:
    pairs = (await ask(server, "GET", "/v2/glossary-language-pairs")).json["supported_languages"]
    assert pairs[0] == {"source_lang": "en", "target_lang": "de"}
    assert len(pairs) == 3
    german = {"source_lang": "en", "target_lang": "de", "entries": ENTRIES}
    french = {
        "source_lang": "de",
        "target_lang": "fr",
        "entries": "Hund,chien",
        "entries_format": "csv",
    }
    made = await post(server, V3, {"name": "both", "dictionaries": [german, french]})
    assert made.status == 201
    path = f"{V3}/{made.json['glossary_id']}"
    assert [each["entry_count"] for each in made.json["dictionaries"]] == [1, 2]
    assert (await ask(server, "GET", V3)).json == {"glossaries": [made.json]}
    assert (await ask(server, "GET", V2)).json == {"glossaries": []}  # it has no place there
    more = {"name": "all", "dictionaries": [{**german, "entries": "cat\tKatze"}]}
    changed = (await ask(server, "PATCH", path, more)).json
    assert changed["name"] == "all"
    assert [each["entry_count"] for each in changed["dictionaries"]] == [1, 3]
    replaced = await ask(server, "PUT", f"{path}/dictionaries", {**german, "entries": "a\tb"})
    assert replaced.json == {"source_lang": "en", "target_lang": "de", "entry_count": 1}
    languages = "source_lang=EN&target_lang=DE"
    [entries] = (await ask(server, "GET", f"{path}/entries?{languages}")).json["dictionaries"]
    assert (entries["entries"], entries["entries_format"]) == ("a\tb", "tsv")
    assert (await ask(server, "DELETE", f"{path}/dictionaries?{languages}")).status == 204
    assert (await ask(server, "DELETE", f"{path}/dictionaries?{languages}")).status == 404
    [left] = (await ask(server, "GET", path)).json["dictionaries"]
    assert left["target_lang"] == "fr"
    assert (await ask(server, "DELETE", path)).status == 204


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        (V2, {**MADE, "name": ""}, "name: is missing"),
        (V2, {**MADE, "entries": ""}, "entries: is missing"),
        (
            V2,
            {**MADE, "entries": "dog"},
            "entries: line 1: needs two columns with a tab between them, has 1",
        ),
        (V2, {**MADE, "entries": ["dog"]}, "entries: must be a string"),
        (V2, {**MADE, "entries_format": "xlsx"}, "entries_format"),
        (V2, {**MADE, "target_lang": "XX"}, "target_lang: no language"),
        (V2, {**MADE, "target_lang": "PL"}, "no model translates en to pl"),
        (V3, {"name": "a"}, "dictionaries"),
        (V3, {"name": "a", "dictionaries": "b"}, "must be a list of objects"),
        (V3, {"name": "a", "dictionaries": [{**MADE, "entries": "x"}]}, "dictionaries[0].entries"),
        (V3, {"name": "a", "dictionaries": [MADE, MADE]}, "same languages"),
        (TRANSLATE, {"text": ["a"], "target_lang": "DE", "glossary_id": 7}, "glossary_id"),
        (
            TRANSLATE,
            {"text": ["a"], "target_lang": "DE", "glossary_id": "x"},
            "glossary_id: there is no glossary 'x'",
        ),
    ],
)
async def test_what_is_wrong_is_named(
    server: Running, path: str, body: dict[str, Any], word: str
) -> None:
    answer = await post(server, path, body)
    assert answer.status == 400
    assert word in answer.json["message"]


async def test_a_glossary_is_for_the_tenant_that_made_it(serving: Serving, tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    made = {"a": file.add("a", tenant="shop"), "b": file.add("b", tenant="shop")}
    made["c"] = file.add("c")
    async with serving(keys=str(tmp_path / "keys")) as server:
        assert (await post(server, V2, MADE)).status == 403
        answer = await post(server, V2, MADE, x_api_key=made["a"])
        path = f"{V2}/{answer.json['glossary_id']}"
        found = [(await ask(server, "GET", path, x_api_key=made[name])).status for name in "abc"]
        assert found == [200, 200, 404]
        refused = await ask(server, "DELETE", path, x_api_key=made["c"])
        assert refused.status == 404
        body = {"text": [TEXT], "target_lang": "DE", "glossary_id": answer.json["glossary_id"]}
        used = [
            (await post(server, TRANSLATE, body, x_api_key=made[name])).status for name in "abc"
        ]
        assert used == [200, 200, 400]

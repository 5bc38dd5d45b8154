"""Glossaries that clients make: their owners', bounded, and still there after a restart."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidArgumentError, NotFoundError, StartupError
from service.text.glossaries import store as glossary_store
from service.text.glossaries.entries import MAX_ENTRIES, read_entries, write_entries
from service.text.glossaries.store import GlossaryStore, is_glossary_id
from service.text.glossaries.stored_glossary import GlossaryText, StoredDictionary, StoreLimits

GERMAN = GlossaryText("en", "de", "dog\tKöter\ncat\tKater|Katze")
FRENCH = GlossaryText("en", "fr", "dog\tclébard")

words = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=9)


@given(st.dictionaries(words, words, min_size=1))
def test_written_entries_are_read(entries: dict[str, str]) -> None:
    assert read_entries(write_entries(entries), "tsv", "entries") == entries
    csv = "\r\n".join(
        ",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in pair)
        for pair in entries.items()
    )
    assert read_entries(csv, "csv", "entries") == entries


@given(st.text(max_size=50), st.sampled_from(["tsv", "csv"]))
def test_any_text_is_entries_or_refused(text: str, form: str) -> None:
    try:
        GlossaryText("en", "de", text, form).read()
    except InvalidArgumentError as error:
        assert error.field.startswith("entries")  # noqa: PT017


@pytest.mark.parametrize(
    ("text", "form", "word"),
    [
        ("", "tsv", "no entry"),
        ("dog Hund", "tsv", "line 1: needs two columns with a tab between them, has 1"),
        (
            "dog\tHund\n\ncat\tKatze\tKater",
            "tsv",
            "line 3: needs two columns with a tab between them, has 3",
        ),
        ("dog\tHund\ndog\tKöter", "tsv", "line 2: this term"),
        ("dog\t", "tsv", "target_term: is empty"),
        ("\tHund", "tsv", "source_term: is empty"),
        (f"{'d' * 201}\tHund", "tsv", "the limit is 200"),
        ('"dog,Hund', "csv", "line 1"),
        ("dog,Hund,en", "csv", "3 columns"),
        ('"a\tb",c', "csv", "tab"),
        ("\n".join(f"a{i}\tb" for i in range(MAX_ENTRIES + 1)), "tsv", "10,000"),
    ],
)
async def test_bad_entries(text: str, form: str, word: str) -> None:
    store = GlossaryStore()
    with pytest.raises(InvalidArgumentError, match=word):
        await store.create("a", "terms", [GlossaryText("en", "de", text, form)])
    assert await store.glossaries("a") == []


async def test_a_glossary_is_its_owners() -> None:
    store = GlossaryStore()
    made = await store.create("a", "terms", [GERMAN, FRENCH])
    assert is_glossary_id(made.id)
    assert await store.glossaries("a") == [made]
    assert await store.glossaries("b") == []
    for call in (
        store.get("b", made.id),
        store.entries("b", made.id, "en", "de"),
        store.rename("b", made.id, "mine"),
        store.put("b", made.id, GERMAN, merges=False),
        store.delete_dictionary("b", made.id, "en", "de"),
        store.delete("b", made.id),
        store.find("b", made.id, "en", "de"),
    ):
        with pytest.raises(NotFoundError):
            await call
    assert await store.get("a", made.id) == made


async def test_changes_count_at_once() -> None:
    store = GlossaryStore()
    made = await store.create("a", "terms", [GERMAN])

    async def forms(word: str, target: str = "de-AT") -> list[tuple[str, ...]]:
        found = await store.find("a", made.id, "en-US", target)
        return [match.entry.forms for match in found.matches(word)]

    assert await forms("dog") == [("Köter",)]
    more = GlossaryText("en", "de", "dog\tHund\ncow\tKuh")
    changed = await store.put("a", made.id, more, merges=True)
    assert changed.dictionaries == (StoredDictionary("en", "de", 3),)
    assert await forms("dog cat") == [("Hund",), ("Kater", "Katze")]
    await store.put("a", made.id, more, merges=False)
    assert await forms("cat") == []
    with pytest.raises(InvalidArgumentError, match="en-de, not en-US-fr"):
        await forms("dog", "fr")
    await store.put("a", made.id, FRENCH, merges=True)
    assert await forms("dog", "fr") == [("clébard",)]
    assert (await store.rename("a", made.id, "animals")).name == "animals"
    await store.delete_dictionary("a", made.id, "en", "fr")
    with pytest.raises(InvalidArgumentError):
        await forms("dog", "fr")
    with pytest.raises(NotFoundError):
        await store.delete_dictionary("a", made.id, "en", "fr")
    await store.delete("a", made.id)
    with pytest.raises(NotFoundError):
        await forms("dog")


async def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glossary_store, "MAX_GLOSSARIES", 3)
    store = GlossaryStore(limits=StoreLimits(max_bytes=5000, max_owner_bytes=3000))
    large = GlossaryText("en", "de", "dog\t" + "ö" * 499)
    for _ in range(2):
        await store.create("a", "terms", [large])
    with pytest.raises(InvalidArgumentError, match="3,072 bytes, the limit is 3,000"):
        await store.create("a", "terms", [large])
    await store.create("b", "terms", [GERMAN])
    await store.create("c", "terms", [GERMAN])
    with pytest.raises(InvalidArgumentError, match="5,120 bytes, the limit is 5,000"):
        await store.create("d", "terms", [GERMAN])
    many = GlossaryStore()
    for _ in range(3):
        await many.create("a", "terms", [GERMAN])
    with pytest.raises(InvalidArgumentError, match="3 glossaries"):
        await many.create("a", "terms", [GERMAN])
    for name in ("", " ", "x" * 201):
        with pytest.raises(InvalidArgumentError, match="name"):
            await many.create("b", name, [GERMAN])
    with pytest.raises(InvalidArgumentError, match="same languages"):
        await many.create("b", "terms", [GERMAN, GERMAN])


async def test_what_is_kept_for_translations_is_bounded() -> None:
    store = GlossaryStore(limits=StoreLimits(max_kept_entries=3))
    ids = [(await store.create("a", "terms", [GERMAN])).id for _ in range(4)]
    for glossary_id in (*ids, *ids):
        assert (await store.find("a", glossary_id, "en", "de")).matches("dog")
    assert store._kept.num_entries <= 3


async def test_a_file_outlives_the_server(tmp_path: Path) -> None:
    path = tmp_path / "glossaries.db"
    store = GlossaryStore(path)
    await store.start()
    made = await store.create("a", "terms", [GERMAN])
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StartupError, match="two servers"):
        await GlossaryStore(path).start()
    await store.stop()
    again = GlossaryStore(path)
    await again.start()
    assert await again.glossaries("a") == [made]
    await again.stop()
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(StartupError, match="has version 7"):
        await GlossaryStore(other).start()

"""Glossaries: of a request, of files that change, and of clients that make their own."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.bundle.spans import Span
from service.errors import InvalidArgumentError, NotFoundError, StartupError
from service.glossaries import files as glossary_files
from service.glossaries import store as glossary_store
from service.glossaries.entries import MAX_ENTRIES, read_entries, write_entries
from service.glossaries.files import GlossaryFiles, read_glossary
from service.glossaries.glossary import Glossary
from service.glossaries.store import GlossaryStore, is_glossary_id
from service.glossaries.stored_glossary import GlossaryText, StoredDictionary, StoreLimits


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("dog", "Hund"), (" ", "Hund")], "glossary.entries[1].source_term: is empty"),
        ([("dog", " | ")], "glossary.entries[0].target_term: is empty"),
        (
            [("d" * 201, "Hund")],
            "glossary.entries[0].source_term: 201 characters, the limit is 200",
        ),
        (
            [("dog", "H" * 501)],
            "glossary.entries[0].target_term: 501 characters, the limit is 500",
        ),
        (
            [("dog", "|".join("abcdefghijklmnopqrstu"))],
            "glossary.entries[0].target_term: more than 20 forms, the limit",
        ),
        (
            [("a\tb", "Hund")],
            "glossary.entries[0].source_term: contains a tab, a line break or a NUL",
        ),
        ([("dog", "Hund")] * 1001, "glossary.entries: more than 1,000 entries, the limit"),
    ],
)
def test_a_bad_entry_is_named(pairs: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        Glossary.of(pairs)
    assert str(error.value) == message


def matched(glossary: Glossary, text: str, *taken: Span) -> list[tuple[str, str]]:
    return [(match.text, match.form) for match in glossary.matches(text, taken)]


def test_the_longest_term_matches_in_three_letter_cases() -> None:
    glossary = Glossary.of(
        [("hot dog", "heiße Wurst"), ("dog", "Hund"), ("C++", "C++"), ("mA", "mA")]
    )
    text = "dog Dog DOG dogs hot dog HOT DOG doG C++ ma mA"
    assert matched(glossary, text) == [
        *(("dog", "Hund"), ("Dog", "Hund"), ("DOG", "HUND")),
        *(("hot dog", "heiße Wurst"), ("HOT DOG", "HEISSE WURST"), ("C++", "C++"), ("mA", "mA")),
    ]


def test_parts_that_are_taken_have_no_terms() -> None:
    glossary = Glossary.of([("dog", "Hund")])
    assert matched(glossary, "dog dog dog", Span(4, 7)) == [("dog", "Hund"), ("dog", "Hund")]


def test_a_requests_own_terms_count_first() -> None:
    named = Glossary.of([("dog", "Köter"), ("hot dog", "Wurst")])
    glossary = Glossary.of([("dog", "Hund")]).over(named)
    assert matched(glossary, "dog hot dog") == [("dog", "Hund"), ("hot dog", "Wurst")]


@given(
    st.lists(st.text("ab C.", min_size=1, max_size=4), max_size=6),
    st.text("abABC. ", max_size=30),
)
def test_matches_are_terms_of_the_text_that_do_not_overlap(terms: list[str], text: str) -> None:
    glossary = Glossary.of([(term, "x") for term in terms if term.strip()])
    end = 0
    for match in glossary.matches(text):
        assert match.span.start >= end
        assert text[slice(*match.span)] == match.text
        assert match.text.lower() == match.entry.source.lower()
        end = match.span.end


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("dog\tHund\n\ncat\n", "line 3: needs two columns with a tab between them, has 1"),
        ("dog\t\n", "line 1: target_term: is empty"),
        ("#languages\ten\n", "line 1: must be #languages and two language codes"),
    ],
)
def test_a_bad_line_of_a_file_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text(content)
    with pytest.raises(StartupError, match=message):
        read_glossary(path)


async def test_files_are_found_by_name_and_languages(tmp_path: Path) -> None:
    (tmp_path / "terms.en-de.tsv").write_text("# animals\ndog\tHund\r\n")
    (tmp_path / "terms.en-fr.tsv").write_text("dog\tchien\n")
    (tmp_path / "other.tsv").write_text("#languages\tpt-BR\ten\ncão\tdog\n")
    files = GlossaryFiles.of([], [tmp_path])
    assert matched(await files.get("terms", "en", "de"), "dog") == [("dog", "Hund")]
    assert matched(await files.get("terms", "en-GB", "fr"), "dog") == [("dog", "chien")]
    assert matched(await files.get("other", "pt-BR", "en"), "cão") == [("cão", "dog")]
    with pytest.raises(InvalidArgumentError, match=r"glossary.name: .*en-de, en-fr, not de-en"):
        await files.get("terms", "de", "en")
    with pytest.raises(NotFoundError, match="there are: other, terms"):
        await files.get("nothing", "en", "de")


async def test_a_file_that_changes_is_read_again_unless_it_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glossary_files, "_CHECK_SECONDS", 0.0)
    path = tmp_path / "terms.tsv"

    def write(content: str, changed: int) -> None:
        path.write_text(content)
        os.utime(path, (changed, changed))

    write("dog\tHund\n", 1)
    files = GlossaryFiles.of([f"terms={path}"], [])
    for changed, content, form in (
        (2, "dog\tKöter\n", "Köter"),
        (3, "nothing\n", "Köter"),
        (4, "dog\tHündin\n", "Hündin"),
    ):
        write(content, changed)
        assert matched(await files.get("terms", "en", "de"), "dog") == [("dog", form)]


def test_a_setting_without_a_name_is_refused() -> None:
    with pytest.raises(StartupError, match="must be NAME=FILE"):
        GlossaryFiles.of(["terms.tsv"], [])


# --- of clients -----------------------------------------------------------------------------------

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

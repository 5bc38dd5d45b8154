"""Glossaries: what a request may have, what matches, and files that change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.bundle.spans import Span
from service.errors import InvalidArgumentError, NotFoundError, StartupError
from service.text.glossaries import files as glossary_files
from service.text.glossaries.files import GlossaryFiles, read_glossary
from service.text.glossaries.glossary import Glossary


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

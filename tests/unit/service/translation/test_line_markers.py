"""Markers at the beginning of a line, and text that only looks like a marker."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.translation.line_markers import opening_length

SENTENCES = Path("tests/parity/sentences.en").read_text(encoding="utf-8").splitlines()

MARKERS = st.sampled_from(
    [*"-*+•–—#>", "1.", "2)", "10.", "1.2.", "(3)", "a)", "B)", "(c)", "iv)", "###", ">>", "---"]
) | st.sampled_from(["[ ]", "[x]", "***", "==", "1.)", "b.)", "iv."])
SPACES = st.sampled_from([" ", "  ", "\t", "\xa0", "\u3000"])
OPENINGS = st.builds(
    lambda indentation, markers: indentation + "".join(markers),
    st.text(" \t", max_size=4),
    st.lists(st.builds(str.__add__, MARKERS, SPACES), max_size=3),
)


def kept(line: str, language: str = "en") -> str:
    """The text before the sentences of a line."""
    return line[: opening_length(line, language)]


@given(opening=OPENINGS, sentence=st.sampled_from(SENTENCES))
def test_markers_and_indentation_are_found_and_no_word(opening: str, sentence: str) -> None:
    assert kept(opening + sentence) == opening


@given(text=st.text(max_size=40) | st.text("- *#>1.()[]ax\t", max_size=20))
def test_a_marker_stands_by_itself(text: str) -> None:
    for language in ("en", "de"):
        opening = kept(text, language)
        rest = text[len(opening) :]
        touches = rest[:1].isalpha() and opening[-1:] in tuple("-–—‐−•‣⁃∙·◦▪●■►▶▸➤✓✔✗✘")
        assert (
            not opening or not rest or opening[-1].isspace() or opening[-1] in ">\ufeff" or touches
        )
        assert kept(rest, language) == ""


@pytest.mark.parametrize(
    "line",
    [
        *("-5 degrees", "1.5 litres of milk", "a dog", "z. B. ein Hund", "2024. It was cold"),
        *("*emphasis* on a word", "#1 song", ">= 5 apples", ">5 apples", "1st place", "+5 points"),
        *("=> next", "-> next", "a.b", "Mr. Smith", "1,000 people", "(see below) text", "[1] is"),
        *(
            "(he) said",
            "(I) think so",
            "(à) Paris",
            "**bold** words",
            "_word_ here",
            "x > 5",
            "3:1 won",
            "e.g. this",
        ),
    ],
)
def test_words_are_no_markers(line: str) -> None:
    assert kept(line) == ""
    assert kept("  " + line) == "  "
    assert kept("- " + line) == "- "


@pytest.mark.parametrize("line", ["-", "a)", "1.", "  *  ", "> ", "- [ ]", "---", "# - >"])
def test_markers_without_a_sentence(line: str) -> None:
    assert kept(line) == line


def test_labels_of_lists() -> None:
    assert kept("a. Hello") == "a. "
    assert kept("I. The dog") == "I. "
    assert kept("- b. The dog") == "- b. "


def test_quotes_need_no_space() -> None:
    assert kept(">> > Hello") == ">> > "
    assert kept('>"Hello"') == ">"
    assert kept("\ufeff# Title") == "\ufeff# "


@pytest.mark.parametrize("mark", ["-", "–", "—", "•", "✓", "- -"])
@pytest.mark.parametrize(
    "line", ["He is here.", "I am.", "I'm here.", "Yes, I am.", "Él está.", "Он тут."]
)
def test_a_dash_may_touch_the_first_of_several_words(mark: str, line: str) -> None:
    assert kept(mark + line) == mark


@pytest.mark.parametrize(
    "line",
    [
        "-D NAME",
        "-Wall -O2",
        "-Minister",
        "-5 He",
        "-über uns",
        "-то и",
        "-Force is",
        "-he is",
        "-I/usr",
    ],
)
def test_a_dash_of_an_option_is_no_marker(line: str) -> None:
    assert kept(line) == ""


def test_a_number_with_a_full_stop_can_be_an_ordinal() -> None:
    assert kept("1. May I go?", "en") == "1. "
    assert kept("1. Mai ist ein Feiertag.", "de-AT") == ""
    assert kept("1) Mai", "de") == "1) "

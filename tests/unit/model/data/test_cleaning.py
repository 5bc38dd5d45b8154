"""Cleaning: what is left out and why, and which pairs are near twins of validation pairs."""

from __future__ import annotations

import pytest

from model.data.cleaning import fault, fold, identity, masked, names_in, near_twins, tidy

LANGUAGES = ("en", "de")


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("The house is red.", "Das Haus ist rot.", None),
        ("Yes.", "Ja.", None),
        ("Windows", "Windows", None),
        ("", "Das Haus ist rot.", "empty"),
        ("a" * 1001, "Das Haus ist rot.", "too long"),
        ("No.", "Das ist ein Satz, der für so wenig viel zu lang ist.", "length ratio"),
        ("12:30 15:45 10%", "12:30 15:45 10 %", "few letters"),
        ("The house is red.", "Дом красный, а не синий.", "script"),
        ("Open the file menu", "open the file menu", "not translated"),
        ("The house is red.", "The house that you have is red.", "language"),
        ("Das Haus ist nicht rot.", "Das Haus ist nicht blau.", "language"),
    ],
)
def test_a_pair_is_left_out_for_one_named_reason(
    source: str, target: str, reason: str | None
) -> None:
    assert fault(source, target, LANGUAGES) == reason


def test_tidy_gives_nfc_with_single_spaces_and_no_control_characters() -> None:
    assert tidy(" u\u0308ber\u00a0\tuns\u200b\x07 \u2028") == "über uns"


def test_pairs_that_differ_in_case_and_punctuation_are_the_same_but_not_in_numbers() -> None:
    assert identity(("Stop!", "Halt!")) == identity(("stop.", "HALT"))
    assert identity(("Page 1", "Seite 1")) != identity(("Page 2", "Seite 2"))
    assert identity(("...", "…")) != identity(("!", "!"))
    assert fold("Page 1!") == fold("page 27")


def test_names_are_words_that_are_mostly_capitalised_inside_sentences() -> None:
    text = ["I saw Tom.", "He is Tom.", "Is it Tom?", "Tom is here.", "The cat saw me.", "A cat."]
    assert names_in(text) == {"tom"}
    assert masked("Tom has 3 cats.", names_in(text)) == "@ has 0 cats"


NAMES = [(f"Did you see {name}?", "x") for name in ("Tom", "Mary", "John") for _ in range(3)]
VALID = [("Tom bought 3 red apples at the market.", "Tom kaufte drei Äpfel."), ("Hi.", "Hallo.")]


@pytest.mark.parametrize(
    ("source", "target", "twin"),
    [
        ("Tom bought 3 red apples at the market.", "Etwas anderes.", True),
        ("Mary bought 12 red apples at the market!", "Etwas anderes.", True),
        ("Tom bought 3 red apples at a market.", "Etwas anderes.", True),
        ("Something else.", "Tom kaufte drei Äpfel", True),
        ("Something else.", "Etwas anderes.", False),
        ("They bought a house in the city last year.", "Etwas anderes.", False),
    ],
)
def test_twins_differ_in_a_name_a_number_a_word_or_the_source_of_one_translation(
    source: str, target: str, twin: bool
) -> None:
    found = near_twins([*NAMES, (source, target)], VALID)
    assert found == ({len(NAMES): {0}} if twin else {})

"""Lists of days: found in English sentences, put right in German ones."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.things.date_lists import date_lists, list_edits
from service.things.edits import EditedText


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("On May 1 and 2 the shop", ["May 1 and 2"]),
        ("on April 3, 10, and 17.", ["April 3, 10, and 17"]),
        ("from 3 to 12 June", ["3 to 12 June"]),
        ("on the 3rd and 4th of May", ["3rd and 4th of May"]),
        ("March 3 to March 12, 2026", ["March 3 to March 12"]),
        ("30 May - 2 June", ["30 May - 2 June"]),
        ("May 3-4 and May 10-11.", ["May 3-4", "May 10-11"]),
        # Numbers that count
        ("On May 1 and 20 people came.", []),
        ("On April 3 and 7 days later", []),
        ("It rained on May 10 and 11, and 12 fell.", ["May 10 and 11"]),
        ("It rained on April 3, and 7 drowned.", []),
        ("June 1 and 2, 30 tickets", []),
        # No lists, or May as a verb
        ("On 5 May and on 6 June", []),
        ("Items 1, 2 and 3 May contain nuts.", []),
        ("On May 3, 4, 5 we met.", []),
    ],
)
def test_lists_are_found(source: str, found: list[str]) -> None:
    assert [source[slice(*each.span)] for each in date_lists(source)] == found


@pytest.mark.parametrize(
    ("source", "text", "right"),
    [
        ("on April 3, 10 and 17.", "am 3. April 10 und 17.", "am 3., 10. und 17. April."),
        ("on May 1 and June 2 the", "am 1. Mai 2. Juni die", "am 1. Mai und 2. Juni die"),
        ("on May 3 and June 10 in", "am Mai 3 und Juni 10. in", "am 3. Mai und 10. Juni in"),
        ("from June 1 to June 3", "vom 1. Juni 3. Juni", "vom 1. Juni bis 3. Juni"),
        # Right as they are
        ("from June 1 to June 3", "vom 1. bis 3. Juni", "vom 1. bis 3. Juni"),
        ("on May 1 and 2", "am 1. Mai und 2. Mai", "am 1. Mai und 2. Mai"),
        ("from 3 to 12 May", "vom 3. bis zum 12. Mai", "vom 3. bis zum 12. Mai"),
        # Two lists, one of which is a part of the other, or the same again
        (
            "on May 5, 6 and 7 we swim and on May 5 and 6 we run",
            "am 5. Mai 6 und 7 schwimmen, am Mai 5 und 6 laufen",
            "am 5., 6. und 7. Mai schwimmen, am 5. und 6. Mai laufen",
        ),
        (
            "on May 1 and 2 we work, on May 1 and 2 they rest.",
            "am Mai 1 und 2 arbeiten, am 1. und 2. Mai ruhen",
            "am 1. und 2. Mai arbeiten, am 1. und 2. Mai ruhen",
        ),
        # Other numbers of the translation
        (
            "3 or 10 euros on May 3 or 10.",
            "3 oder 10 am 3. Mai 10.",
            "3 oder 10 am 3. oder 10. Mai.",
        ),
        ("on May 1 and 2.", "am 1. Mai. 2 Leute", "am 1. Mai. 2 Leute"),
        ("on May 1 and 2.", "am 1. Mai und 2 Leute", "am 1. Mai und 2 Leute"),
        ("on May 1 and 2.", "am 1.5 und 2. Mai", "am 1.5 und 2. Mai"),
    ],
)
def test_lists_are_put_right(source: str, text: str, right: str) -> None:
    assert EditedText(text, list_edits(source, text)).text == right


ENGLISH = "1 2 3 10 30 5-6 May June 1st , . - and or to from on the people"
GERMAN = "1 2. 3 10. 30 Mai Juni , . - und oder bis vom am Leute"
sources, texts = (
    st.lists(st.sampled_from(words.split(" ")), max_size=14).map(" ".join)
    for words in (ENGLISH, GERMAN)
)


@given(sources, texts)
def test_edits_do_not_overlap_and_keep_all_numbers(source: str, text: str) -> None:
    edits = sorted(list_edits(source, text), key=lambda edit: edit.span)
    for edit, after in itertools.pairwise(edits):
        assert edit.span.end <= after.span.start
    numbers = [
        [word.strip(".,") for word in each.replace("–", " ").split() if word[0].isdigit()]
        for each in (text, EditedText(text, edits).text)
    ]
    assert numbers[0] == numbers[1]

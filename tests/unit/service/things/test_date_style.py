"""Dates as German and English write them."""

from __future__ import annotations

import pytest

from service.things.date_style import corrected, ordered
from service.things.edits import EditedText
from tests.unit.service.text.scripted_translator import FakeTranslator, stage


@pytest.mark.parametrize(
    ("source", "text", "right"),
    [
        ("on October 4", "Es endet auf 4. Oktober.", "Es endet am 4. Oktober."),
        ("On October 4", "In 4. Oktober endet es.", "Am 4. Oktober endet es."),
        ("from July 30 to August 2", "Von 30. Juli bis 2. August.", "Vom 30. Juli bis 2. August."),
        ("in May and in June", "In Mai und in Juni.", "Im Mai und im Juni."),
        ("on February 9, 2011", "am 9. Februar, 2011", "am 9. Februar 2011"),
        ("in mid-June", "In der Mitte Juni, in Mitte Juni", "Mitte Juni, Mitte Juni"),
        ("published on Thursday", "auf Donnerstag", "am Donnerstag"),
        ("open Monday to Friday", "Montag auf Freitag geöffnet", "Montag bis Freitag geöffnet"),
        # Right as they are
        ("moved to October 4", "auf 4. Oktober verlegt", "auf 4. Oktober verlegt"),
        ("Christmas falls on Friday", "fällt auf Freitag", "fällt auf Freitag"),
        ("forward to Friday; on Friday", "freue mich auf Freitag", "freue mich auf Freitag"),
        ("from Monday to Tuesday", "von Montag auf Dienstag", "von Montag auf Dienstag"),
        ("in love with June", "in Juni verliebt", "in Juni verliebt"),
        ("postponed to Thursday", "auf Donnerstag verschoben", "auf Donnerstag verschoben"),
        ("the night Monday to Friday", "von Montag auf Freitag", "von Montag auf Freitag"),
        ("in May nights", "in Mai-Nächten, in Mainz", "in Mai-Nächten, in Mainz"),
        ("from June to July", "von Juni bis Juli", "von Juni bis Juli"),
    ],
)
def test_words_around_german_dates(source: str, text: str, right: str) -> None:
    assert EditedText(text, corrected(source, text, ("en", "de"))).text == right
    assert corrected(source, text, ("fr", "de")) == corrected(source, text, ("en", "fr")) == []


@pytest.mark.parametrize(
    ("source", "text", "right"),
    [
        ("May 3 is a Friday.", "Mai 3 ist Freitag.", "3. Mai ist Freitag."),
        ("On the 3rd of May", "Am 3 Mai", "Am 3. Mai"),
        ("closed May 5-9", "Mai 5-9 geschlossen", "5.–9. Mai geschlossen"),
        ("on 1 and 2 May", "am 1 und 2. Mai", "am 1. und 2. Mai"),
        ("1-3 May", "1-3 Mai", "1.–3. Mai"),
        ("May 1-3, 2026", "Mai 1-3. 2026", "1.–3. Mai 2026"),
        ("from May 3 to May 12", "vom 3. Mai bis 12. Mai", "vom 3. Mai bis 12. Mai"),
        ("May 30 - June 2", "Mai 30 - 2. Juni", "30. Mai – 2. Juni"),
        ("On May 1 and June 2 the", "Am 1. Mai 2. Juni die", "Am 1. Mai und 2. Juni die"),
        ("on April 3, 10, and 17.", "am 3. April 10 und 17.", "am 3., 10. und 17. April."),
        ("on 3, 10 and 17 April", "am 3. 10, 17. April", "am 3., 10. und 17. April"),
        ("On 1 and 2 May the shop", "Am 1 und 2. Mai", "Am 1. und 2. Mai"),
        ("until June 12 or 13.", "bis zum 12. Juni oder 13.", "bis zum 12. oder 13. Juni."),
        # Right as they are, or no dates
        ("on 1 and 2 May", "am 1. und 2. Mai", "am 1. und 2. Mai"),
        ("from 14:30 to 12 May", "von 14:30 bis 12. Mai", "von 14:30 bis 12. Mai"),
        ("Chapters 3 and 4 in March", "Kapitel 3 und 4. März", "Kapitel 3 und 4. März"),
        ("In May 4 dogs died, on May 4 one.", "Im Mai 4 Hunde", "Im Mai 4 Hunde"),
        ("In May, 5 to 9 people", "Im Mai 5 bis 9 Leute", "Im Mai 5 bis 9 Leute"),
        ("In May, 3 people", "Im Mai 3 Leute", "Im Mai 3 Leute"),
    ],
)
def test_several_german_days(source: str, text: str, right: str) -> None:
    assert EditedText(text, ordered(source, text, ("en", "de"))).text == right
    assert ordered(source, text, ("fr", "de")) == []


@pytest.mark.parametrize(
    ("source", "text", "right"),
    [
        ("Der 1. Mai", "The 1th May is a party.", "The 1st of May is a party."),
        ("Heute ist der 3. August.", "Today is the 3 August.", "Today is the 3rd of August."),
        ("Am 2. Juni, am 21. Juni.", "On 2. June and 21th June.", "On 2 June and 21 June."),
        (
            "Am 4. Oktober, am 3. Mai",
            "On 4 October, May 3, the 3rd of May.",
            "On 4 October, May 3, the 3rd of May.",
        ),
        ("Die Feiern zum 9. Mai", "The 9 May celebrations", "The 9 May celebrations"),
    ],
)
def test_english_days(source: str, text: str, right: str) -> None:
    assert EditedText(text, corrected(source, text, ("de", "en"))).text == right


def test_the_preposition_of_a_list_of_days() -> None:
    edits = corrected("From May 1 to 3", "Von 1. bis 3. Mai", ("en", "de"))
    assert EditedText("Von 1. bis 3. Mai", edits).text == "Vom 1. bis 3. Mai"


async def test_quotations_are_not_edited() -> None:
    below = FakeTranslator(words={"May": "Mai"})
    [result] = await stage(below, letter_case=False).translate(['It is "in May" in May.'])
    assert (result.text, result.warnings) == ('It is "in Mai" im Mai.', [])

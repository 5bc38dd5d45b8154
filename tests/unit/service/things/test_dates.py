"""Dates: days of the week, months and days of months."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.things.checks import added
from service.things.dates import Date, contracted, date_of, dates_in, dates_to_keep
from service.things.edits import EditedText
from service.things.number_reader import small_numbers_in
from service.things.sentence_needs import thing_needs
from service.things.things import Form, find_things
from service.things.wanted import Candidate, Needs
from tests.unit.service.text.scripted_translator import FakeTranslator, stage

_DAYS_OF_WEEK = 7
_LANGUAGES = ["da", "de", "en", "es", "fr", "it", "nl", "pt"]
_names = st.integers(0, 18)
_months, _days = st.integers(7, 18), st.integers(1, 31)


def needs_of(sentence: str, source: str = "en", target: str = "de") -> Needs:
    return thing_needs(sentence, find_things(sentence, language=source), source, target)


@given(_names, st.sampled_from(_LANGUAGES))
def test_a_name_is_read_as_it_is_written(name: int, language: str) -> None:
    written = Date(name).written(language)
    assert written is not None
    assert [date for _, date in dates_in(f"Xy {written}, zy.", language)] == [Date(name)]


@given(_months, _days, st.sampled_from(_LANGUAGES))
def test_a_date_is_read_as_it_is_written(month: int, day: int, language: str) -> None:
    date = Date(month, day)
    written = date.written(language)
    assert written is not None
    assert date_of(written, language) == date
    assert {found for _, found in dates_in(f"{written} 2026.", language)} == {date, Date(month)}


@given(_months, _days, st.sampled_from(["de", "fr", "es"]))
def test_a_translation_lacks_a_date_with_another_day_or_month(
    month: int, day: int, target: str
) -> None:
    source, right = Date(month, day).written("en"), Date(month, day).written(target)
    needs = needs_of(f"It ends on {source}, 2026.", target=target)
    assert not needs.num_wrong(Candidate(f"Xy {right} 2026."))
    other_day = Date(month, day % 31 + 1).written(target)
    other_month = Date(7 + (month - 6) % 12, day).written(target)
    for other in (other_day, other_month):
        [(_, put)] = needs.missing(Candidate(f"Xy {other} 2026."))
        assert put == right


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("It ends on October 4th, 2026.", {"October 4th": (16, 4)}),
        ("It ends on 4 October 2026.", {"4 October": (16, 4)}),
        ("on the third of May", {"third of May": (11, 3)}),
        ("the twenty-third of May", {"twenty-third of May": (11, 23)}),
        ("the twenty third of May", {"twenty third of May": (11, 23)}),
        ("July the 22nd, July the fourth", {"July the 22nd": (13, 22), "July the fourth": (13, 4)}),
        ("Friday, April 17", {"Friday": (4, 0), "April 17": (10, 17)}),
        ("From May 1 to July 31", {"May 1": (11, 1), "July 31": (13, 31)}),
        ("Oct. 4, Sept. 11", {"Oct. 4": (16, 4), "Sept. 11": (15, 11)}),
        ("on 4 Dec 1940", {"4 Dec": (18, 4)}),
        ("Closed on Mondays and THURSDAYS", {"Mondays": (0, 0), "THURSDAYS": (3, 0)}),
        ("on sunday in october", {"sunday": (6, 0), "october": (16, 0)}),
        ("May 3 is free.", {"May 3": (11, 3)}),
        ("You may come in May, and march in March.", {"May": (11, 0), "March": (9, 0)}),
        ("mid-May 2010", {"May": (11, 0)}),
        # Of several days, each is a number.
        ("4 and 6 October, July 1-3", {"October": (16, 0), "July": (13, 0)}),
        ("October 10,000 people", {"October": (16, 0)}),
        ("October 32", {"October": (16, 0)}),
        # Other words, and names of persons
        ("Theresa May, Fredric March", {}),
        ("May 3 people come in?", {}),
        ("an august body, the sun sat, a dec, a mar", {}),
        ("Mondayish, unfriday", {}),
    ],
)  # fmt: skip
def test_english_dates(text: str, kept: dict[str, tuple[int, int]]) -> None:
    found = {text[slice(*span)]: (date.name, date.day) for span, date in dates_to_keep(text, "en")}
    assert found == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Am 4. Oktober, am vierten Mai", {"4. Oktober": (16, 4), "vierten Mai": (11, 4)}),
        ("montags und am Sonnabend", {"montags": (0, 0), "Sonnabend": (5, 0)}),
        ("im Jänner, Anfang August", {"Jänner": (7, 0), "August": (14, 0)}),
        # Parts of words, and other words
        ("Am Ostersonntag, am Mittwochabend, die Novemberwahlen", {}),
        ("Mainz, Mais, Juliane, Junior", {}),
    ],
)
def test_german_dates(text: str, kept: dict[str, tuple[int, int]]) -> None:
    found = {text[slice(*span)]: (date.name, date.day) for span, date in dates_to_keep(text, "de")}
    assert found == kept


@pytest.mark.parametrize(
    ("source", "right"),
    [
        ("It ends on October 4.", "Es endet am 4. Oktober."),
        ("It ends on October 4.", "Es endet am vierten Oktober."),
        ("It ends on Oct. 4.", "Es endet am 4. Okt. 2026."),
        ("On October 4 and October 5.", "Am 4. und 5. Oktober."),
        ("From July 1 to July 31.", "Vom 1. bis 31. Juli."),
        ("Closed on Mondays.", "Montags geschlossen."),
        ("On Easter Sunday.", "Am Ostersonntag."),
        ("On Saturday.", "Am Sonnabend."),
        ("Saturday evening.", "Samstagabend."),
        ("The November elections.", "Die Novemberwahlen."),
        ("He reads the Sunday Times.", "Er liest die Sunday Times."),
        ("A Monday in May; Mondays in June.", "Ein Montag im Mai; montags im Juni."),
    ],
)
def test_german_words_are_recognised(source: str, right: str) -> None:
    needs = needs_of(source)
    assert needs
    assert not needs.num_wrong(Candidate(right))
    assert needs.num_wrong(Candidate("Nichts."))


def test_of_languages_without_names_only_the_day_is_kept() -> None:
    needs = needs_of("It ends on October 4, a Friday.", target="pl")
    assert [put for _, put in needs.missing(Candidate("Nic."))] == ["4"]


def test_things_of_a_date_belong_to_it() -> None:
    found = find_things("On the 4th of October, 12 dogs ate 5 kg.")
    assert [(thing.form, thing.text) for thing in found] == [
        (Form.DATE, "4th of October"),
        (Form.NUMBER, "12"),
        (Form.UNIT, "5 kg"),
    ]


def test_a_day_is_put_where_german_writes_it() -> None:
    needs = needs_of("May 3 is a Friday.")
    candidate = Candidate("Mai 3 ist Freitag.")
    assert not needs.num_wrong(candidate)
    text = EditedText(candidate.text, needs.bettered(candidate)).text
    assert text == "3. Mai ist Freitag."


@pytest.mark.parametrize(
    ("source", "text", "right"),
    [
        ("on October 4", "Es endet auf 4. Oktober.", "Es endet am 4. Oktober."),
        ("On October 4", "In 4. Oktober endet es.", "Am 4. Oktober endet es."),
        ("in May", "In Mai und in Juni.", "Im Mai und im Juni."),
        ("on February 9, 2011", "am 9. Februar, 2011", "am 9. Februar 2011"),
        ("published on Thursday", "auf Donnerstag", "am Donnerstag"),
        ("postponed to Thursday", "auf Donnerstag verschoben", "auf Donnerstag verschoben"),
        ("in May nights", "in Mai-Nächten, in Mainz", "in Mai-Nächten, in Mainz"),
    ],
)
def test_german_prepositions(source: str, text: str, right: str) -> None:
    assert EditedText(text, contracted(source, text, "de")).text == right
    assert contracted(source, text, "fr") == []


@pytest.mark.parametrize(
    ("source", "text", "name"),
    [
        ("In the middle of the week.", "Am Mittwoch.", ["Mittwoch"]),
        ("On Mon and on 3 Oct.", "Am Montag und am 3. Oktober.", []),
        ("On 12/05/2024.", "Am 12. Juni 2024.", []),
        ("At Easter they eat maize.", "Am Ostersonntag essen sie Mais.", []),
        ("On Monday.", "Am Montag.", []),
    ],
)
def test_names_that_only_the_translation_has(source: str, text: str, name: list[str]) -> None:
    assert added(source, text, ("en", "de")) == name
    assert added(source, text, ("pl", "de")) == []


async def test_a_lost_name_is_put_into_the_translation() -> None:
    below = FakeTranslator(words={"Thursdays": "often", "Mondays": "Montag"})
    [result] = await stage(below, letter_case=False).translate(["Closed Mondays and Thursdays."])
    assert (result.text, result.warnings) == ("Closed Montag and Donnerstag.", [])


async def test_a_date_that_is_lost_is_read_in_another_format_then() -> None:
    below = FakeTranslator(words={"October": "Oktubre", "4 October": "4. Oktober"})
    [result] = await stage(below, letter_case=False).translate(["It ends October 4."])
    assert (result.text, result.warnings) == ("It ends 4. Oktober.", [])
    assert [texts for texts, _ in below.calls][1] == ["It ends 4 October."]


@pytest.mark.parametrize(
    ("source", "right"),
    [
        ("Three dogs.", "Drei Hunde."),
        ("Three dogs.", "3 Hunde."),
        ("She called three times.", "Sie rief dreimal an."),
        ("A five-star hotel.", "Ein Fünfsternehotel."),
        ("In ten years.", "In einem Jahrzehnt."),
        ("High five!", "High five!"),
        ("Three to four hundred.", "Drei- bis vierhundert."),
    ],
)
def test_small_numbers_may_be_parts_of_german_words(source: str, right: str) -> None:
    needs = needs_of(source)
    assert needs
    assert not needs.num_wrong(Candidate(right))
    assert needs.num_wrong(Candidate("Zwanzig Hunde."))
    assert not needs_of(source, target="fr")


def test_small_numbers_begin_words() -> None:
    text = "Klavier, Nacht, dreimal, Vierteljahr und zwölfte"
    found = [(text[slice(*span)], number.value) for span, number in small_numbers_in(text, "de")]
    assert found == [("dreimal", 3), ("Vierteljahr", 4), ("zwölfte", 12)]
    assert small_numbers_in(text, "fr") == []

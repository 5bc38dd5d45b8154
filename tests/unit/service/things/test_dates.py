"""Dates: days of the week, months and days of months."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.glossaries.glossary import Glossary
from service.things.checks import added
from service.things.date_scan import dates_to_keep
from service.things.dates import Date, date_of, dates_in
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
    assert [date for _, date in dates_in(f"Xy {written}, zy.", language)] == [Date(name)]


@given(_months, _days, st.sampled_from(_LANGUAGES))
def test_a_date_is_read_as_it_is_written(month: int, day: int, language: str) -> None:
    date = Date(month, day)
    written = date.written(language)
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
        ("I turned 18 May 4.", {"May 4": (11, 4)}),
        ("OPEN FROM MAY TO JUNE 4", {"MAY": (11, 0), "JUNE 4": (12, 4)}),
        ("Friday, April 17", {"Friday": (4, 0), "April 17": (10, 17)}),
        ("From May 1 to July 31", {"May 1": (11, 1), "July 31": (13, 31)}),
        ("Oct. 4, Sept. 11", {"Oct. 4": (16, 4), "Sept. 11": (15, 11)}),
        ("on 4 Dec 1940", {"4 Dec": (18, 4)}),
        ("Closed on Mondays and THURSDAYS", {"Mondays": (0, 0), "THURSDAYS": (3, 0)}),
        ("on sunday in october", {"sunday": (6, 0), "october": (16, 0)}),
        ("May 3 is free.", {"May 3": (11, 3)}),
        ("You may come in May, and march in March.", {"May": (11, 0), "March": (9, 0)}),
        ("in mid-May 2010", {"mid-May": (11, 0)}),
        ("a mid-June deadline", {"June": (12, 0)}),
        ("Mon, 8 Feb. at 9", {"Mon": (0, 0), "8 Feb.": (8, 8)}),
        ("Wed 3 Oct", {"Wed": (2, 0), "3 Oct": (16, 3)}),
        ("Mon-Fri, Tue to Thu", {"Mon": (0, 0), "Fri": (4, 0), "Tue": (1, 0), "Thu": (3, 0)}),
        # Of several days, each is a number.
        ("4 and 6 October, July 1-3", {"October": (16, 0), "July": (13, 0)}),
        ("October 10,000 people", {"October": (16, 0)}),
        ("October 32", {"October": (16, 0)}),
        # Counts and fractions
        ("In October 4 people came.", {"October": (16, 0)}),
        ("In July 12 children, in October 4th graders", {"July": (13, 0), "October": (16, 0)}),
        ("the last third of October, two thirds of June", {"October": (16, 0), "June": (12, 0)}),
        ("every second October, a fifth of July", {"October": (16, 0), "July": (13, 0)}),
        ("Since April 10 people have died.", {"April": (10, 0)}),
        ("Between March and May 30 people died.", {"March": (9, 0), "May": (11, 0)}),
        ("By October 4 we need it.", {"October 4": (16, 4)}),
        ("On July 9 guests came.", {"July 9": (13, 9)}),
        ("Set sep 2 and dec 3.", {}),
        ("the second May bank holiday", {}),
        ("a May 5-star hotel, the July 5-star hotel", {"July": (13, 0)}),
        # Other words, and names of persons
        ("Theresa May, Fredric March, in March Street", {}),
        ("June saw April. Aunt August's Sunday best", {}),
        ("The wettest are May, June and July.", {"June": (12, 0), "July": (13, 0)}),
        ("He sat. The sun wed us to Mon.", {}),
        ("May 3 people come in?", {}),
        ("an august body, the sun sat, a dec, a mar", {}),
        ("Mondayish, unfriday", {}),
    ],
)  # fmt: skip
def test_english_dates(text: str, kept: dict[str, tuple[int, int]]) -> None:
    found = {
        text[slice(*span)]: (date.number, date.day) for span, date in dates_to_keep(text, "en")
    }
    assert found == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Am 4. Oktober, am vierten Mai", {"4. Oktober": (16, 4), "vierten Mai": (11, 4)}),
        ("montags und am Sonnabend", {"montags": (0, 0), "Sonnabend": (5, 0)}),
        ("im Jänner, Anfang August", {"Jänner": (7, 0), "August": (14, 0)}),
        ("Er hat im Mai 12 Tore geschossen, Anfang Juni 4.", {"Mai": (11, 0), "Juni": (12, 0)}),
        ("Jeden dritten Mai, die 2. Juli-Woche", {"Mai": (11, 0), "Juli": (13, 0)}),
        # Parts of words, and other words
        ("Am Ostersonntag, am Mittwochabend, die Novemberwahlen", {}),
        ("Mainz, Mais, Juliane, Junior", {}),
        ("Herr Mai, Frau Sonntag", {}),
    ],
)
def test_german_dates(text: str, kept: dict[str, tuple[int, int]]) -> None:
    found = {
        text[slice(*span)]: (date.number, date.day) for span, date in dates_to_keep(text, "de")
    }
    assert found == kept


@pytest.mark.parametrize(
    ("source", "right"),
    [
        ("It ends on October 4.", "Es endet am 4. Oktober."),
        ("It ends on October 4.", "Es endet am vierten Oktober."),
        ("It ends on Oct. 4.", "Es endet am 4. Okt."),
        ("On October 4 and October 5.", "Am 4. und 5. Oktober."),
        ("From July 1 to July 31.", "Vom 1. bis 31. Juli."),
        ("Closed on Mondays.", "Montags geschlossen."),
        ("In mid-May.", "Mitte Mai."),
        ("On Easter Sunday.", "Am Ostersonntag."),
        ("On Saturday.", "Am Sonnabend."),
        ("On a cold January day.", "An einem kalten Januartag."),
        ("On October 4 and on October 6.", "Am 4. und am 6. Oktober."),
        ("On October 4-6.", "Vom 4. bis 6. Oktober."),
        ("On October 4-6.", "4. - 6. Oktober"),
        ("Saturday evening.", "Samstagabend."),
        ("The November elections.", "Die Novemberwahlen."),
        ("He reads the Sunday Times.", "Er liest die Sunday Times."),
        ("A Monday in May; Mondays in June.", "Ein Montag im Mai; montags im Juni."),
    ],
)
def test_german_words_are_recognised(source: str, right: str) -> None:
    needs, candidate = needs_of(source), Candidate(right)
    assert needs
    assert not needs.num_wrong(candidate)
    assert needs.num_wrong(Candidate("Nichts."))
    places = [place for spans in needs.found(candidate).values() for place in spans]
    things = [thing.span for thing in find_things(source)]
    assert added(source, right, ("en", "de"), things, places) == []


_PIECES = (
    "May may March Oct. October Sept Sat., Sat. Sun Mon Tues, Mondays FRIDAY mid-May mid- 4 31st 32"
    " third 3rd twenty-first the of in on - – , . to and 2026 Mai Juli montags vierten am -Woche"
)


@given(
    st.lists(st.sampled_from(_PIECES.split()), max_size=9),
    st.sampled_from(["en", "de"]),
    st.sampled_from([str, str.upper, str.title, str.lower]),
)
@example(["in", "mid-May"], "en", str.title)
@example(["October", "3/4"], "en", str)
def test_whatever_is_found_has_forms(
    pieces: list[str], source: str, cased: Callable[[str], str]
) -> None:
    joined = " ".join(pieces).replace(" - ", "-").replace(" , ", ", ").replace(" . ", ". ")
    text = cased(joined)
    for target in (*_LANGUAGES, "pl"):
        needs = needs_of(text, source, target)
        lacking = needs.missing(Candidate("Nichts."))
        if target != "pl":  # where a date is its day, which may also be a number
            full = Candidate("; ".join(put for _, put in lacking))
            assert not needs.missing(full), (text, full.text)


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


@pytest.mark.parametrize(
    ("source", "text", "name"),
    [
        ("In the middle of the week.", "Am Mittwoch.", ["Mittwoch"]),
        ("On Mon and on 3 Oct.", "Am Montag und am 3. Oktober.", []),
        ("On 12/05/2024.", "Am 12. Juni 2024.", []),
        ("At Easter they eat maize.", "Am Ostersonntag essen sie Mais.", []),
        ("On Monday.", "Am Montag.", []),
        ("Open on weekdays.", "Montags bis freitags geöffnet.", []),
        ("The youth of Augustus at the beer festival", "Junioren, Augustiner, Oktoberfest", []),
        ("A week from Friday.", "Am Freitag von Freitag.", ["Freitag"]),
    ],
)
def test_names_that_only_the_translation_has(source: str, text: str, name: list[str]) -> None:
    assert added(source, text, ("en", "de")) == name
    assert added(source, text, ("pl", "de")) == []


async def test_a_lost_name_is_put_into_the_translation() -> None:
    below = FakeTranslator(words={"Thursdays": "often", "Mondays": "Montag"})
    [result] = await stage(below, letter_case=False).translate(["Closed Mondays and Thursdays."])
    assert (result.text, result.warnings) == ("Closed Montag and Donnerstag.", [])


@pytest.mark.parametrize(
    ("source", "given"),
    [
        ("It ends 4 Oct 2026.", "4 October"),
        ("It ends Mon, 8 February.", "Monday"),
        ("It ends in mid-May.", "the middle of May"),
        ("See you on MONDAY.", "Monday"),
    ],
)
def test_the_model_reads_whole_names(source: str, given: str) -> None:
    assert set(needs_of(source).given().values()) == {given}


async def test_a_term_of_the_glossary_comes_before_a_name() -> None:
    glossary = Glossary.of([("Friday", "Rabatttag")])
    [result] = await stage(FakeTranslator(), letter_case=False, glossary=glossary).translate(
        ["It ends Friday."]
    )
    assert (result.text, result.warnings) == ("It ends Rabatttag.", [])


async def test_a_date_in_words_is_read_in_digits_if_it_is_lost() -> None:
    below = FakeTranslator(words={"third": "Drittel", "3rd of May": "3. Mai"})
    [result] = await stage(below, letter_case=False).translate(["It ends third of May."])
    assert (result.text, result.warnings) == ("It ends 3. Mai.", [])


async def test_a_date_that_is_lost_is_read_in_another_format_then() -> None:
    below = FakeTranslator(words={"October": "Oktubre", "4 October": "4. Oktober"})
    [result] = await stage(below, letter_case=False).translate(["It ends October 4."])
    assert (result.text, result.warnings) == ("It ends 4. Oktober.", [])
    assert [texts for texts, _ in below.calls][1] == ["It ends 4 October."]


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize(
    "part", ["in May ", "4, ", "sep ", "the 3rd of ", "Mon-", "twenty ", "4 and "]
)
def test_any_text_is_searched_in_linear_time(part: str) -> None:
    def seconds(length: int) -> float:
        text = (part * length)[:length] + "May"
        started = time.thread_time()
        list(dates_to_keep(text, "en"))
        return time.thread_time() - started

    seconds(100)
    assert seconds(40_000) < 40 * max(seconds(4_000), 2e-3)

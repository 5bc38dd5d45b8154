"""Times in words, better forms of times and units, and estimates."""
# ruff: noqa: E501 - cases are easier to read in one line each

from __future__ import annotations

import pytest

from model.bundle.spans import Span
from service.things.edits import Edit, EditedText
from service.things.estimates import estimated
from service.things.scanned import ScannedSentence, TermRules
from service.things.sentence_needs import thing_needs
from service.things.spacing import in_style
from service.things.thing_forms import forms_of
from service.things.things import Form, find_things
from service.things.wanted import Candidate, Need, Needs
from service.translation.links import Link
from tests.unit.service.text.scripted_translator import FakeTranslator, stage


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("half past 6", "6:30 Uhr"),
        ("Quarter to 8 p.m.", "19:45 Uhr"),
        ("quarter to 1", "12:45 Uhr"),  # as the clock shows it, without am or pm
        ("quarter past 12", "12:15 Uhr"),
        ("quarter past 12 am", "0:15 Uhr"),
        ("half past six", "6:30 Uhr"),
        ("ten to six", "5:50 Uhr"),
        ("twenty-five to one", "12:35 Uhr"),
        ("six thirty", "6:30 Uhr"),
        ("twelve forty-five", "12:45 Uhr"),
        ("five forty-five in the evening", "17:45 Uhr"),
        ("Half past twelve", "12:30 Uhr"),
        ("a quarter to one", "12:45 Uhr"),
        ("ten past three p.m.", "15:10 Uhr"),
        ("a quarter to nine in the evening", "20:45 Uhr"),
        ("half past two in the afternoon", "14:30 Uhr"),
        ("twenty-five past eleven at night", "23:25 Uhr"),
        ("half past one at night", "1:30 Uhr"),
    ],
)
def test_parts_of_an_hour(text: str, written: str) -> None:
    [thing] = find_things(f"It is {text}, he said")
    assert forms_of(thing, "en", "de").right[0] == written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("halb zehn", "9:30"),
        ("halb eins", "12:30"),
        ("fünf nach halb sechs", "5:35"),
        ("zehn vor halb eins", "12:20"),
        ("Viertel nach sieben", "7:15"),
        ("Viertel vor eins", "12:45"),
        ("Viertel acht", "7:15"),
        ("dreiviertel acht", "7:45"),
        ("zwanzig nach zwölf", "12:20"),
        ("fünf Minuten vor zwölf", "11:55"),
    ],
)
def test_german_times_in_words(text: str, written: str) -> None:
    [thing] = find_things(f"Er kam um {text}, sagte sie.", language="de")
    assert thing.text == text
    assert forms_of(thing, "de", "en").right[0] == written
    assert forms_of(thing, "de", "en").given == written


@pytest.mark.parametrize(
    "text",
    [
        "Das Viertel vor acht Jahren war schöner.",
        "Das Viertel acht Kilometer südlich ist ruhig.",
        "Die Hälfte ist halb zwei Euro wert.",
        "Sie ist zehn vor fünf Jahren geworden.",
        "Der Kurs ist zehn nach fünf im Vorjahr.",
        "Ein halb verbranntes Ei.",
        "Er ging vor zehn nach Hause.",
        "Drei viertel der Leute.",
    ],
)
def test_other_german_words_are_no_times(text: str) -> None:
    assert not [thing for thing in find_things(text, language="de") if thing.form is Form.TIME]


def test_english_keeps_the_twelve_hour_clock_of_other_texts() -> None:
    [thing] = find_things("Um 4 pm, sagte er.", language="de")
    assert forms_of(thing, "de", "en").right == ("4 pm",)


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("He paid at 4 pm.", "Er hat 16:00 bezahlt.", "Er hat 16:00 Uhr bezahlt."),
        ("He paid at 4 pm.", "Er hat um 16 Uhr bezahlt.", "Er hat um 16 Uhr bezahlt."),
        ("Meet me at 3:30 pm.", "Triff mich um 15:30.", "Triff mich um 15:30 Uhr."),
        ("At 4 pm or later.", "Um 16:00 oder später.", "Um 16:00 Uhr oder später."),
        ("At 4 pm", "Um 16:00\u00a0Uhr", "Um 16:00\u00a0Uhr"),
        ("Go at 4:30 pm", "UM 16:30 UHR GEHEN", "UM 16:30 UHR GEHEN"),
        ("4 pm", "16:00", "16:00"),
        (
            "At 4 pm, 5 pm and 6 pm.",
            "Um 16:00, 17:00 und 18:00 Uhr.",
            "Um 16:00, 17:00 und 18:00 Uhr.",
        ),
        ("At 4:30 pm it was 16:30.", "Um 16:30 Uhr war es 16:30.", "Um 16:30 Uhr war es 16:30."),
        ("He drank 0.5 l of milk.", "Er trank 0,5l Milch.", "Er trank 0,5 l Milch."),
        ("Between 5 km and 10 km.", "Von 5km und 10km.", "Von 5 km und 10 km."),
        ("He ran 5 km.", "Er lief 5km weit.", "Er lief 5 km weit."),
        ("He ran 5\u00a0km.", "Er lief 5km weit.", "Er lief 5\u00a0km weit."),
        ("He ran 5km.", "Er lief 5km weit.", "Er lief 5km weit."),
        ("A 5 % solution.", "Eine 5%ige Lösung.", "Eine 5%ige Lösung."),
        ("A 5 GB file.", "Eine 5GB-Datei.", "Eine 5GB-Datei."),
        ("He ran 5 km.", "Er lief fünf Kilometer.", "Er lief fünf Kilometer."),
    ],
)
def test_correct_forms_become_better_ones(source: str, text: str, expected: str) -> None:
    needs = thing_needs(source, find_things(source), "en", "de")
    edits = list(needs.bettered(Candidate(text)))
    assert EditedText(text, edits).text == expected
    assert needs.missing(Candidate(expected)) == needs.missing(Candidate(text))


def test_better_forms_are_of_one_language_and_leave_terms_alone() -> None:
    text = "Es sind 5 % mehr."
    english = thing_needs(text, find_things(text, language="de"), "de", "en")
    assert not list(english.bettered(Candidate("It is 5% more.")))
    source, target = "On the 5 km run.", "Beim 5km Lauf."
    needs = thing_needs(source, find_things(source), "en", "de")
    term = Needs({"5 km run": Need((Span(7, 15),), ("5km Lauf",))})
    assert list(needs.bettered(Candidate(target))) == [Edit(Span(5, 8), "5 km")]
    assert not list(needs.bettered(Candidate(target), term))


def test_links_follow_a_better_form() -> None:
    rules = TermRules("en", "de")
    sentence = ScannedSentence.scanned("He paid at 4 pm today.", rules)
    needs = thing_needs(sentence.text, sentence.things, "en", "de")
    text = "Er zahlte um 16:00 heute."
    links = [Link(Span(11, 15), Span(13, 18)), Link(Span(16, 21), Span(19, 24))]
    found = in_style(sentence, Candidate(text, links), needs)
    assert found.text == "Er zahlte um 16:00 Uhr heute."
    assert [found.text[slice(*link.target)] for link in found.links] == ["16:00 Uhr", "heute"]


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("About 50 people came.", "Über 50 Menschen kamen.", "Etwa 50 Menschen kamen."),
        ("Around six people died.", "Um sechs Menschen starben.", "Etwa sechs Menschen starben."),
        ("About ninety-two percent agreed.", "Über 92 Prozent stimmten zu.", "Etwa 92 Prozent stimmten zu."),
        ("About a thousand came.", "Über tausend kamen.", "Etwa tausend kamen."),
        ("About 50 people came.", "Rund 50 Menschen kamen.", "Rund 50 Menschen kamen."),
        ("Over 50 people came.", "Über 50 Menschen kamen.", "Über 50 Menschen kamen."),
        ("Around ten the party ended.", "Um zehn endete das Fest.", "Um zehn endete das Fest."),
        ("Around six o'clock we eat.", "Um sechs Uhr essen wir.", "Um sechs Uhr essen wir."),
        ("About safety we argue.", "Über die Sicherheit streiten wir.", "Über die Sicherheit streiten wir."),
        ("About 9/11 he wrote.", "Über 9/11 schrieb er.", "Über 9/11 schrieb er."),
        ("Around nine-year-old boys.", "Um neunjährige Jungen.", "Um neunjährige Jungen."),
        ("About the dog.", "Über den Hund.", "Über den Hund."),
        ("About it we know nothing.", "Über es wissen wir nichts.", "Über es wissen wir nichts."),
    ],
)  # fmt: skip
def test_an_estimate_stays_one(source: str, text: str, expected: str) -> None:
    assert EditedText(text, estimated(source, text, "de")).text == expected
    assert not estimated(source, text, "fr")


async def test_sentences_without_things_are_estimates_too() -> None:
    below = FakeTranslator(words={"About": "Über", "six": "sechs"})
    text = "About six people came. About it."
    [result] = await stage(below, letter_case=False).translate([text])
    assert result.text == "Etwa sechs people came. Über it."


@pytest.mark.parametrize("target", ["da", "cs", "es", "it", "pl", "pt", "sv", "nl", "fr", "de"])
def test_whole_hours_have_forms_in_every_language(target: str) -> None:
    [thing] = find_things("Come at 5 am.")
    right = forms_of(thing, "en", target).right
    assert right[0] in ("5:00", "5 uur", "5 h", "5 Uhr")
    assert "05:00" in right


def test_a_german_number_before_am_is_no_time() -> None:
    found = find_things("Wir sind 4 am Tisch, um 4 a.m.", language="de")
    assert [(thing.form, thing.text) for thing in found] == [
        (Form.NUMBER, "4"),
        (Form.TIME, "4 a.m"),
    ]

"""The numbers three to twelve in words."""

from __future__ import annotations

import pytest

from service.things.number_reader import small_numbers_in
from service.things.sentence_needs import thing_needs
from service.things.things import Form, find_things
from service.things.wanted import Candidate, Needs
from service.translation.results import WarningKind
from tests.unit.service.text.scripted_translator import FakeTranslator, stage


def needs_of(sentence: str, source: str = "en", target: str = "de") -> Needs:
    return thing_needs(sentence, find_things(sentence, language=source), source, target)


async def test_a_small_number_is_never_put_where_it_may_not_belong() -> None:
    below = FakeTranslator(words=dict.fromkeys(("four", "4", "{1}", "%1", "XX1"), "many"))
    [result] = await stage(below, letter_case=False).translate(["They saw four dogs."])
    assert result.text == "They saw many dogs."
    assert [warning.kind for warning in result.warnings] == [WarningKind.MISSING]


@pytest.mark.parametrize(
    ("source", "right"),
    [
        ("Three dogs.", "Drei Hunde."),
        ("Three dogs.", "3 Hunde."),
        ("She called three times.", "Sie rief dreimal an."),
        ("A five-star hotel.", "Ein Fünfsternehotel."),
        ("In ten years.", "In einem Jahrzehnt."),
        ("Three dogs.", "Dreierlei Hunde."),
        ("Three to four hundred.", "Drei- bis vierhundert."),
    ],
)
def test_small_numbers_may_be_parts_of_german_words(source: str, right: str) -> None:
    needs = needs_of(source)
    assert needs
    assert not needs.num_wrong(Candidate(right))
    for other in ("Zwanzig", "Dreizehn", "Dreißig", "Fünfzehn", "Vierzig", "Siebzig"):
        assert needs.num_wrong(Candidate(f"{other} Hunde.")), other
    assert not needs_of(source, target="fr")


def test_small_numbers_begin_words() -> None:
    text = "Klavier, Nacht, dreimal, Vierteljahr und zwölfte; achtzig, dreizehn, vierundzwanzig"
    found = [(text[slice(*span)], number.value) for span, number in small_numbers_in(text, "de")]
    assert found == [("dreimal", 3), ("Vierteljahr", 4), ("zwölfte", 12)]
    assert small_numbers_in(text, "fr") == []


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Ich gebe acht auf dich.", "de"),
        ("Du musst dich in acht nehmen.", "de"),
        ("He bought a six-pack for the nine-to-five job.", "en"),
        ("High five! She is on cloud nine.", "en"),
    ],
)
def test_idioms_have_no_small_numbers(text: str, language: str) -> None:
    assert not [t for t in find_things(text, language=language) if t.form is Form.NUMBER_IN_WORDS]


def test_a_number_that_is_also_in_words_is_put_as_digits() -> None:
    needs = needs_of("Three dogs and room 3.")
    assert [put for _, put in needs.to_put(Candidate("Drei Hunde und Zimmer."))] == ["3"]

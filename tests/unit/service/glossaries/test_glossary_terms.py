"""Terms of a glossary in translations, and the letter case of texts."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given

from service.glossaries.glossary import Glossary
from service.translation.options import TranslateOptions
from tests.unit.service.text.scripted_translator import (
    FakeTranslator,
    stage,
    texts,
    translated,
)

GLOSSARY = Glossary.of([("dog", "Hund|Hundes"), ("hot dog", "Wurst"), ("house", "Haus")])


async def test_terms_are_put_in_with_the_letter_case_of_the_text() -> None:
    texts = ["The dog is here.", "Dog of the HOUSE.", "A hot dog is doghouse.", "No house dogs."]
    rules = {"glossary": GLOSSARY, "term_methods": ("replace",)}
    results = await stage(FakeTranslator(), **rules).translate(texts)
    assert [result.text for result in results] == [
        *("The Hund is here.", "Hund of the HAUS."),
        *("A Wurst is doghouse.", "No Haus dogs."),
    ]
    assert [[(t.source, t.count, t.num_applied) for t in result.terms] for result in results] == [
        [("dog", 1, 1)],
        [("dog", 1, 1), ("house", 1, 1)],
        [("hot dog", 1, 1)],
        [("house", 1, 1)],
    ]


@pytest.mark.parametrize("method", ["constrain", "replace", "stand in"])
async def test_each_of_several_occurrences_has_its_own_letter_case(method: str) -> None:
    rules = {"glossary": GLOSSARY, "term_methods": (method,), "letter_case": False}
    texts = ["A DOG and a dog.", "The dog of a Dog is a DOG.", "dog DOG."]
    assert await translated(FakeTranslator(), *texts, **rules) == [
        "A HUND and a Hund.",
        "The Hund of a Hund is a HUND.",
        "Hund HUND.",
    ]


async def test_what_a_model_writes_as_the_first_occurrence_gets_its_letter_case() -> None:
    below = FakeTranslator(words={"dog": "HUND", "DOG": "HUND", "GRR": "HUND", "house": "haus"})
    rules = {"glossary": GLOSSARY, "letter_case": False}
    texts = ["A DOG and a dog.", "The DOG and the DOG.", "The dog."]
    assert await translated(below, *texts, **rules) == [
        *("A HUND and a Hund.", "The HUND and the HUND.", "The HUND."),
    ]
    assert len(below.calls) == 1
    small = Glossary.of([("dog", "toutou")])
    below = FakeTranslator(words={"GRR": "toutou", "dog": "Toutou"})
    rules = {"glossary": small, "letter_case": False}
    assert await translated(below, "dog DOG.", **rules) == ["Toutou TOUTOU."]


async def test_accepted_forms_may_be_used_despite_a_shortlist_by_their_own_sentence_only() -> None:
    below = FakeTranslator(words={"dog": "Hundes"})
    await translated(below, "Of the dog.", "Of the house.", "Of the DOG.", glossary=GLOSSARY)
    listed = {text: options.listed_text for texts, options in below.calls for text in texts}
    assert {"Hund", "Hundes"} <= {*listed["Of the dog."].split()}
    assert "HUND" in listed["Of the DOG."].split()
    assert "Haus" in listed["Of the house."].split()
    assert "Hund" not in listed["Of the house."].split()


async def test_an_accepted_form_stays() -> None:
    below = FakeTranslator(words={"dog": "Hundes"})
    assert await translated(below, "Of the dog.", glossary=GLOSSARY) == ["Of the Hundes."]
    assert len(below.calls) == 1


async def test_a_term_that_could_not_be_applied_is_reported() -> None:
    below = FakeTranslator(words={"dog": ""})
    [result] = await stage(below, glossary=GLOSSARY, term_methods=("replace",)).translate(
        ["The dog runs."]
    )
    assert [(term.source, term.num_applied) for term in result.terms] == [("dog", 0)]


@given(texts)
def test_a_glossary_puts_in_no_term_that_was_not_asked_for(text: str) -> None:
    below = FakeTranslator()
    [result] = asyncio.run(stage(below, glossary=GLOSSARY).translate([text]))
    for entry in GLOSSARY.entries:
        asked = {match.entry for match in GLOSSARY.matches(text)}
        if entry not in asked:
            assert not any(form in result.text for form in entry.forms if form not in text)


async def test_capitals_are_read_in_lower_case_and_written_in_capitals() -> None:
    below = FakeTranslator(words={"tired": "müde"})
    assert await translated(below, "I AM VERY TIRED {name}.") == ["I AM VERY MÜDE {name}."]


async def test_an_abbreviation_that_is_likelier_stays() -> None:
    below = FakeTranslator({"nasa": "nasal", "NASA": "Nasa"})
    assert await translated(below, "NASA") == ["Nasa"]


async def test_a_translation_without_a_word_never_wins() -> None:
    # Of "OF" and "of", the second one's is likelier.
    assert await translated(FakeTranslator({"of": ""}), "OF") == ["GRR"]
    assert await translated(FakeTranslator({"Of": ""}), "Of") == ["Of"]


async def test_where_hypotheses_are_shown_the_letter_case_stays() -> None:
    below = FakeTranslator()
    [result] = await stage(below).translate(
        ["THE DOG RUNS {name}."], TranslateOptions(num_hypotheses=1)
    )
    assert result.text == result.sentences[0].hypotheses[0].text

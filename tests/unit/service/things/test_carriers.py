"""Carriers that stand in for things: those of the model, sentinels, and invented ones."""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.bundle.carriers import DEFAULT_CARRIERS, SENTINELS, Carrier
from model.bundle.spans import Span
from service.domain.requests import FinishReason
from service.things.attempts import Draft
from service.things.carrying import invented, numbered
from service.things.edits import Edit, EditedText
from service.things.scanned import TermRules
from service.things.terms_translator import TermsTranslator
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import TextResult, WarningKind
from service.translation.translator import StreamDelta
from tests.unit.service.text.scripted_translator import FakeTranslator, stage, translated

TRAINED = (Carrier(SENTINELS, 3), *DEFAULT_CARRIERS)
CODES = ["A1000233344", "INV20240000123", "main.py", "foo_bar", "docs.python.org"]


def given_texts(below: FakeTranslator) -> list[str]:
    return [text for texts, _ in below.calls for text in texts]


def run(below: FakeTranslator, text: str, **rules: Any) -> TextResult:
    [result] = asyncio.run(stage(below, **rules).translate([text]))
    return result


def test_a_model_with_sentinels_reads_them_in_the_order_of_the_sentence() -> None:
    below = FakeTranslator()
    result = run(below, "The codes A1000233344 and foo_bar are right.", carriers=TRAINED)
    assert given_texts(below) == ["The codes \ue001 and \ue002 are right."]
    assert result.text == "The codes A1000233344 and foo_bar are right."


def test_more_things_than_sentinels_get_the_next_carrier() -> None:
    below = FakeTranslator()
    text = f"The names {' and '.join(CODES)}."
    result = run(below, text, carriers=TRAINED)
    assert given_texts(below)[0] == "The names {1} and {2} and {3} and {4} and {5}."
    assert result.text == text


def test_the_carriers_of_the_model_are_tried_in_their_order() -> None:
    below = FakeTranslator({"<1>": "<"})
    carriers = (Carrier("<%d>"), Carrier("ID%d"), Carrier("#%d#"))
    result = run(below, "The code A1000233344 is right.", carriers=carriers)
    assert [text.split()[2] for text in given_texts(below)] == ["<1>", "ID1"]
    assert result.text == "The code A1000233344 is right."
    assert not result.warnings


def test_the_alignment_places_what_no_carrier_brings_back() -> None:
    below = FakeTranslator({"<1>": "<", "ID1": "id"})
    carriers = (Carrier("<%d>"), Carrier("ID%d"))
    result = run(below, "The code A1000233344 is right.", carriers=carriers)
    assert result.text == "The code A1000233344 is right."
    assert [options.links for _, options in below.calls] == [False, False, True]


@pytest.mark.parametrize(
    ("source", "written", "text"),
    [
        ("It costs 30 thousand.", "Es kostet {1}tausend.", "Es kostet 30 tausend."),
        ("A 30-year-old.", "Ein {1}jähriger.", "Ein 30-jähriger."),
        ("It is 30.", "Es ist {1}.", "Es ist 30."),
    ],
)
def test_a_word_glued_to_a_carrier_is_parted_from_the_thing(
    source: str, written: str, text: str
) -> None:
    start = source.index("30")
    edited = EditedText(source, [Edit(Span(start, start + 2), "{1}")])
    result = TextResult(written, FinishReason.EOS)
    assert Draft(edited, {"{1}": "30"}, result).candidate({}).text == text


def test_without_a_carrier_the_alignment_places_the_thing() -> None:
    below = FakeTranslator({"A1000233344": "A100"})
    result = run(below, "The code A1000233344 is right.", carriers=())
    assert result.text == "The code A1000233344 is right."
    assert given_texts(below) == ["The code A1000233344 is right."] * 2


def test_placeholders_of_markup_get_a_better_carrier_if_there_is_one() -> None:
    below = FakeTranslator({"{1}": "1"})
    text = "Press {1} to begin."
    assert run(below, text, carriers=TRAINED).text == text
    assert given_texts(below) == ["Press \ue001 to begin."]
    below = FakeTranslator()
    assert run(below, text).text == text
    assert given_texts(below) == [text]


@pytest.mark.parametrize("taken", ["\ue001", "\ue002 and \ue001", "{1}"])
def test_a_carrier_in_the_text_is_not_used_for_another_thing(taken: str) -> None:
    below = FakeTranslator()
    text = f"The code A1000233344 is beside {taken} here."
    result = run(below, text, carriers=TRAINED)
    assert result.text == text
    assert not any(sign in given_texts(below)[0] for sign in taken if sign > "\ue000")


def test_numbered_carriers_are_free_and_limited() -> None:
    sentinels = Carrier(SENTINELS, 3)
    assert numbered(sentinels, 2, "a \ue001 b") == ["\ue002", "\ue003"]
    assert numbered(sentinels, 3, "a \ue001 b") is None
    assert numbered(Carrier("{%d}"), 2, "{2}", "{1}") == ["{3}", "{4}"]


@pytest.mark.parametrize(
    ("text", "count"),
    [("a {1} b", 1), ("a %1 b", 1), ("100%1 b", 0), ("XX1.", 1), ("XX1a", 0), ("\ue002", 1)],
)
def test_what_looks_like_a_carrier_is_found(text: str, count: int) -> None:
    assert len(invented(text, TRAINED, "a b")) == count
    assert not invented(text, TRAINED, text)


@dataclass
class InventingTranslator(FakeTranslator):
    """Also writes carriers that nobody gave it."""

    seed: int = 0

    def _translated(self, text: str, options: TranslateOptions, index: int) -> TextResult:
        result = super()._translated(text, options, index)
        rng = random.Random(f"{self.seed} {text}")
        words = result.text.split(" ")
        for _ in range(rng.randrange(4)):
            new = rng.choice(["\ue001", "\ue002", "{1}", "{7}", "%3", "XX2"])
            words[rng.randrange(len(words))] = new
        return replace(result, text=" ".join(words), links=())


CARRIER = re.compile(r"[\ue000-\ue010]|\{\d\}|(?<![\w%])%\d\b|\bXX\d\b")
parts = st.sampled_from(["dog", "the", "runs", "house", *CODES, "$20", "9 am", "\uf101", "\ue002"])
sentences = st.lists(parts, min_size=1, max_size=9).map(" ".join)


@given(sentences, st.integers(0, 1000), st.booleans())
def test_no_carrier_is_in_an_answer(text: str, seed: int, is_trained: bool) -> None:
    carriers = TRAINED if is_trained else DEFAULT_CARRIERS
    below = InventingTranslator(seed=seed)
    result = run(below, f"Here {text} and A5544332211.", carriers=carriers)
    assert all(each in text for each in CARRIER.findall(result.text)), result.text


@given(sentences, st.integers(0, 1000))
def test_private_characters_of_the_client_are_kept_or_warned_of(text: str, seed: int) -> None:
    below = InventingTranslator(seed=seed)
    result = run(below, f"Here {text}.", carriers=TRAINED)
    for character in ("\uf101", "\ue002"):
        assert result.text.count(character) == text.count(character) or result.warnings


async def test_a_stream_has_no_sentinel_that_the_model_invented() -> None:
    below = FakeTranslator(words={"dog": "\ue001 Hund"})
    rules = TermRules("en", "de", carriers=TRAINED)
    events = [
        event
        async for event in TermsTranslator(below, rules, TranslatorLimits()).stream("A dog runs.")
    ]
    *deltas, last = events
    assert isinstance(last, TextResult)
    assert last.text == "A  Hund runs."
    assert "".join(each.text for each in deltas if isinstance(each, StreamDelta)) == last.text


def test_an_invented_carrier_is_named_in_a_warning() -> None:
    below = FakeTranslator(words={"is": "is XX2"})
    result = run(below, "The code A1000233344 is right.")
    assert result.text == "The code A1000233344 is right."
    assert [(w.kind, w.text) for w in result.warnings] == [(WarningKind.SIGNS, "XX2")]


async def test_texts_without_things_lose_invented_sentinels_too() -> None:
    below = FakeTranslator(words={"dog": "Hund\ue002"})
    assert await translated(below, "A dog runs.", carriers=TRAINED) == ["A Hund runs."]
    assert await translated(below, "A dog runs.", carriers=TRAINED, kinds=frozenset()) == [
        "A Hund runs."
    ]

"""The test of pronouns, and the ways to translate with context, on a client without a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from bench.context.contrastive import Contrast, contrast
from bench.context.documents import DocumentSet
from bench.context.methods import ContextMethods
from bench.context.pronouns import (
    GENDERS,
    PronounItem,
    judge,
    noun_gender,
    pronoun_gender,
    pronoun_items,
)
from bench.context.report import render
from dragoman import AsyncClient, FinishReason, PairScore, ScoreBatch, Search, Translation
from dragoman.client import TranslationBatch

LONGEST = 12  # words that the fake model reads at once


class FakeClient:
    """Translates each word to capitals; keeps a target prefix; finds shorter pairs likelier."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def translate(
        self, texts: Sequence[str], *, search: Search, **arguments: Any
    ) -> TranslationBatch:
        [text] = texts
        self.texts.append(text)
        words, prefix = text.split(), (search.target_prefix or "").split()
        target = " ".join([*prefix, *(word.upper() for word in words[len(prefix) :])])
        num, was_split = len(words), len(words) > LONGEST
        found = Translation(target, FinishReason.EOS, num, num, was_split)
        return TranslationBatch([found], "fake", 0.0, 0.0, "")

    async def score(self, pairs: Sequence[tuple[str, str]], **arguments: Any) -> ScoreBatch:
        scores = [PairScore(-float(len(target)), 1, 1) for _, target in pairs]
        return ScoreBatch(scores, "fake", 0.0, 0.0, "")


def methods(client: FakeClient) -> ContextMethods:
    return ContextMethods(cast(AsyncClient, client), "en", "de")


@pytest.mark.parametrize("distance", [0, 1, 2])
def test_items_are_balanced_and_differ_in_the_pronoun_alone(distance: int) -> None:
    items = pronoun_items(distance)
    counts = Counter(item.gender for item in items)
    assert set(counts) == set(GENDERS)
    assert len(set(counts.values())) == 1
    assert len({(item.sources, item.references) for item in items}) == len(items)
    for item in items:
        assert len(item.sources) == distance + 2
        assert len(item.references) == distance + 1
        assert item.german_noun in item.references[0]
        words = [item.candidates[gender].lower().split() for gender in GENDERS]
        differing = [column for column in zip(*words, strict=True) if len(set(column)) > 1]
        assert len(differing) == 1
        for gender in GENDERS:
            assert pronoun_gender(item.candidates[gender]) == gender


def test_the_same_pronoun_everywhere_is_right_in_a_third_of_the_items() -> None:
    items = pronoun_items()
    for gender in GENDERS:
        counts = judge(items, [[*item.references, item.candidates[gender]] for item in items])
        assert counts.right == len(items) // 3
        assert counts.wrong == len(items) - counts.right
        assert counts.share == pytest.approx(1 / 3)
    right = judge(items, [[*item.references, item.candidates[item.gender]] for item in items])
    assert right.right == len(items)


@pytest.mark.parametrize(
    ("translation", "outcome"),
    [
        (["Wo ist der Hausschlüssel?", "Er ist alt."], "right"),
        (["Wo ist der Schlüssel?", "Ich mag es."], "wrong"),
        (["Wo ist der Schlüssel?", "Das ist alt."], "without"),
        (["Wo ist die Taste?", "Sie ist alt."], "unknown"),
    ],
)
def test_an_outcome(translation: list[str], outcome: str) -> None:
    item = next(item for item in pronoun_items() if item.german_noun == "Schlüssel")
    assert getattr(judge([item], [translation]), outcome) == 1


def test_a_noun_is_found_as_the_last_part_of_a_compound_only() -> None:
    item = next(item for item in pronoun_items() if item.german_noun == "Uhr")
    assert noun_gender(item, "Das ist meine Armbanduhr.") == "f"
    assert noun_gender(item, "Das ist mein Uhrwerk.") is None


async def test_methods_translate_the_same_sentences_where_context_changes_nothing() -> None:
    documents = [["Dogs bark.", "Two men sing loudly.", "Hello.", "Cats sleep here."], ["One day."]]
    expected = [[sentence.upper() for sentence in document] for document in documents]
    client = FakeClient()
    for count in (1, 2, 3):
        for run in (
            await methods(client).alone(documents),
            await methods(client).joint(documents, count),
            await methods(client).prefix(documents, count),
        ):
            assert run.documents == expected
            assert run.num_fallbacks == 0
    assert "Dogs bark. Two men sing loudly. Hello. Cats sleep here." in client.texts


async def test_the_oldest_sentences_are_left_out_where_the_model_cannot_read_all() -> None:
    document = [
        "Dogs bark very loudly today.",
        "Cats sleep in the house.",
        "Men sing in the street.",
    ]
    for method in ("joint", "prefix"):
        client = FakeClient()
        run = await getattr(methods(client), method)([document], 2)
        assert run.documents == [[sentence.upper() for sentence in document]]
        assert run.num_fallbacks == 0
        assert client.texts[-1] == "Cats sleep in the house. Men sing in the street."


async def test_a_sentence_is_translated_alone_where_nothing_fits_beside_it() -> None:
    document = ["word " * LONGEST, "Dogs."]
    run = await methods(FakeClient()).prefix([document], 1)
    assert run.num_fallbacks == 1
    assert run.documents[0][1] == "DOGS."


async def test_contrast_counts_the_items_whose_right_pronoun_is_the_likeliest() -> None:
    items = pronoun_items()[::16]
    found = await contrast(cast(AsyncClient, FakeClient()), items, 1, "en", "de")
    # The shortest candidates: "er", and "es" where it is "ihn" otherwise.
    assert sum(each.num_items for each in found.values()) == len(items)
    assert found["f"].share == 0
    assert 0 < sum(each.num_right for each in found.values()) < len(items)


def test_pronouns_that_stand_for_a_noun_are_found_in_documents(
    tmp_path: Path,
) -> None:
    pairs = [
        ("d1", "I have a dog.", "Ich habe einen Hund."),
        ("d1", "It is old.", "Er ist alt."),
        ("d1", "It is clear that he sleeps.", "Es ist klar, dass er schläft."),
        ("d1", "It sleeps.", "Er schläft."),
        ("d2", "It is big.", "Sie ist groß."),  # nothing before it
    ]
    for name, column in zip(("doc", "en", "de"), zip(*pairs, strict=True), strict=True):
        (tmp_path / f"t.{name}").write_text("".join(f"{line}\n" for line in column))
    found = DocumentSet.parse("t=t.en,t.de,t.doc", tmp_path)
    assert [len(document) for document in found.sources] == [4, 1]
    items = list(found.pronoun_items(2))
    assert [item.gender for item in items] == ["m", "m"]
    assert items[0] == PronounItem(
        "m",
        "",
        ("I have a dog.", "It is old."),
        ("Ich habe einen Hund.",),
        {"m": "Er ist alt.", "f": "Sie ist alt.", "n": "Es ist alt."},
    )
    assert len(items[1].sources) == 3


def test_the_report_shows_every_table() -> None:
    contrasts = {"0": {gender: Contrast(1, 3) for gender in GENDERS}}
    run = {
        "BLEU": {"score": 20.0, "p": None},
        "chrF2": {"score": 40.0, "p": 0.04},
        "num_source_tokens": 10,
        "num_steps": 20,
        "num_fallbacks": 0,
    }
    text = render(
        {
            "documents": [
                {"name": "t", "num_documents": 1, "num_sentences": 2, "runs": {"alone": run}}
            ],
            "pronouns": [
                {
                    "distance": 0,
                    "num_items": 3,
                    "free": {"alone": {"right": 1, "wrong": 1, "without": 0, "unknown": 1}},
                    "contrastive": contrasts,
                }
            ],
            "natural": [{"name": "t", "contrastive": contrasts}],
        }
    )
    assert "| alone | 20.0 |  | 40.0 | 0.040 | 10 | 20 | 0 |" in text
    assert "| alone | 1 | 1 | 50.0 % | 0 | 1 |" in text
    assert text.count("| 0 | 33.3 % (1 of 3) |") == 2

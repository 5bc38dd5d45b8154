"""Confidence of sentences and texts, over an engine whose model repeats what it reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from model.bundle.calibration import Calibration
from model.bundle.tokenizer import Tokenizer
from service.domain.plan import RunnerLimits
from service.domain.requests import SearchOptions
from service.engine.engine import Engine
from service.translation.options import TranslateOptions
from service.translation.pivot import PivotTranslator
from service.translation.results import TextResult
from service.translation.translator import Translator
from tests.fake_runner import FakeRunner, echo

# The identity between -100 and 0, scaled: a confidence says which score it was made from.
MAP = Calibration("en", "de", (-100.0, 0.0), (0.0, 1.0))
SENTENCES = TranslateOptions(num_hypotheses=1, return_tokens=True)


@pytest.fixture
async def translator(tokenizer: Tokenizer) -> AsyncIterator[Translator]:
    engine = Engine.of_runner(FakeRunner(RunnerLimits(4, 64, 64, 2, tokenizer.vocab_size), echo))
    await engine.start()
    yield Translator(engine, tokenizer, calibration=MAP)
    await engine.stop()


def mean(tokens: list[float]) -> float:
    return sum(tokens) / len(tokens)


@pytest.mark.parametrize("beam_size", [1, 2])
async def test_it_is_the_mean_log_probability_of_the_best_hypothesis(
    translator: Translator, beam_size: int
) -> None:
    options = replace(SENTENCES, search=SearchOptions(beam_size=beam_size))
    [result] = await translator.translate(["A dog runs. It barks!"], options)
    weights, values = [], []
    for sentence in result.sentences:
        scores = [token.log_probability for token in sentence.hypotheses[0].tokens]
        assert sentence.confidence == pytest.approx(MAP.confidence(mean(scores)))
        weights.append(len(scores))
        values.append(sentence.confidence or 0)
    expected = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    assert result.confidence == pytest.approx(expected)
    assert 0 < expected < 1


async def test_given_tokens_do_not_count(translator: Translator) -> None:
    options = replace(SENTENCES, target_prefix="Ein Hund")
    [result] = await translator.translate(["A dog runs."], options)
    scores = [token.log_probability for token in result.sentences[0].hypotheses[0].tokens]
    given = len(translator.tokenizer.encode("Ein Hund"))
    assert scores[:given] == [0] * given
    assert result.confidence == pytest.approx(MAP.confidence(mean(scores[given:])))


async def test_a_stream_ends_with_the_same(translator: Translator) -> None:
    text = "A dog runs. It barks!"
    [result] = await translator.translate([text])
    *_, end = [event async for event in translator.stream(text)]
    assert isinstance(end, TextResult)
    assert end.confidence == result.confidence is not None


async def test_there_is_none_for_copies_pivots_errors_and_without_a_map(
    translator: Translator, tokenizer: Tokenizer
) -> None:
    copied, bad = await translator.translate(["12345", "a\0b"])
    assert copied.confidence is None is bad.confidence
    pivot = PivotTranslator(translator, translator, "fr")
    [result] = await pivot.translate(["A dog runs."], SENTENCES)
    assert result.confidence is None is result.sentences[0].confidence
    plain = Translator(translator._engine, tokenizer)
    [result] = await plain.translate(["A dog runs."], SENTENCES)
    assert result.confidence is None is result.sentences[0].confidence

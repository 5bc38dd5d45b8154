"""Alignments of translations: links, positions of tokens, and limits."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.submission import submit
from model.bundle.tokenizer import Tokenizer
from service.decoding.linked_sources import linked_sources
from service.domain.plan import ScoreItem
from service.domain.requests import (
    AlignmentKind,
    Hypothesis,
    ScoringRequest,
)
from service.errors import InvalidArgumentError
from service.translation import alignments
from service.translation.alignments import alignment_of, given_tokens, source_tokens
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.pair_scorer import ScoreOptions
from service.translation.translator import Translator
from tests.factories import tiny_tokenizer
from tests.fake_runner import FakeRunner
from tests.fake_scorer import FakeScorer
from tests.unit.service.translation.scoring import EOS, LIMITS, WIDE, serving


@given(st.integers(1, 6), st.integers(1, 6), st.booleans(), st.integers(0, 2**32 - 1))
def test_links_are_the_largest_weights_of_the_words(
    num_source: int, num_target: int, ended: bool, seed: int
) -> None:
    attention = np.random.default_rng(seed).dirichlet(np.ones(num_source + 1), num_target + ended)
    token_ids = list(range(10, 10 + num_target))
    weights = attention.astype(np.float32)
    linked = linked_sources(weights, num_target)
    scored = Hypothesis(
        token_ids, [-1.0] * len(attention), -1.0, -1.0, ended, linked=linked, attention=weights
    )
    alignment = alignment_of(scored)
    assert alignment.rows is weights
    for target, (source, linked_target) in enumerate(alignment.links):
        assert linked_target == target
        assert source == int(weights[target, :-1].argmax())
    assert len(alignment.links) == num_target


def test_a_source_without_words_has_no_links() -> None:
    assert linked_sources(np.ones((3, 1), np.float32), 2).tolist() == []


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def test_tokens_know_where_they_stand(tokenizer: Tokenizer) -> None:
    text = "  A dog ﬁnds\n 12 €"
    *tokens, end = source_tokens(text, tokenizer)
    assert end.span == (len(text), len(text))
    assert "".join(text[slice(*token.span)] for token in tokens) == "Adogﬁnds12€"
    ids = tokenizer.encode(text)
    scored = Hypothesis(ids, [-1.0] * (len(ids) + 1), -1.0, -1.0, True)
    assert [token.span for token in given_tokens(text, scored, tokenizer)] == [
        token.span for token in (*tokens, end)
    ]


@given(text=st.text(max_size=30).filter(lambda text: "\0" not in text))
def test_spans_are_in_order_and_cover_what_is_written(tokenizer: Tokenizer, text: str) -> None:
    spans = tokenizer.encoded_spans(text)
    assert len(spans) == len(tokenizer.encode(text))
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert all(first.end <= second.start for first, second in pairwise(spans))
    ids = tokenizer.encode(text)
    decoded = tokenizer.decode(ids)
    made = tokenizer.decoded_spans([*ids, tokenizer.eos_id])
    assert made[-1].start == made[-1].end
    assert "".join(decoded[start:end] for start, end in made) == "".join(decoded.split())


# --- how much of it one call may have ------------------------------------------------------------


@contextlib.asynccontextmanager
async def translating(
    tokenizer: Tokenizer, runner: FakeRunner, scorer: FakeScorer
) -> AsyncIterator[Translator]:
    async with serving(runner, scorer, encode_token_budget=100_000) as engine:
        limits = TranslatorLimits(max_characters=10_000)
        yield Translator(engine, tokenizer, limits=limits)


async def test_soft_alignments_that_are_too_large_altogether_are_refused_unscored(
    tokenizer: Tokenizer,
) -> None:
    scorer = FakeScorer()
    text = "A dog. " * 60
    size = len(tokenizer.encode(text)) + 1
    fit = alignments.MAX_SOFT_WEIGHTS // size**2
    assert fit < 1024  # a call may have so many pairs
    soft, hard = ScoreOptions(return_alignments="soft"), ScoreOptions(return_alignments="hard")
    async with translating(tokenizer, FakeRunner(WIDE), scorer) as translator:
        score = translator.scorer.score
        with pytest.raises(
            InvalidArgumentError, match=r"options.return_alignments: .*4,000,000 weights"
        ):
            await score([(text, text)] * (fit + 1), soft)
        assert scorer.items == []
        results = await score([(text, text)] * fit, soft)
        rows = [result.alignment.rows for result in results if result.alignment]
        assert [row.shape for row in rows if row is not None] == [(size, size)] * fit
        results = await score([(text, text)] * (fit + 1), hard)
        assert all(result.alignment and result.alignment.rows is None for result in results)


async def test_nor_may_those_of_translations_be(tokenizer: Tokenizer) -> None:
    runner = FakeRunner(WIDE, lambda source_ids: [11] * 400)
    text = "A dog. " * 60
    size = len(tokenizer.encode(text)) + 1
    texts = [text] * (alignments.MAX_SOFT_WEIGHTS // (size * 401) + 1)
    async with translating(tokenizer, runner, FakeScorer()) as translator:

        def options(kind: AlignmentKind) -> TranslateOptions:
            return TranslateOptions(
                split_sentences=False, max_new_tokens=401, return_alignments=kind
            )

        with pytest.raises(InvalidArgumentError, match=r"options.return_alignments: .*4,000,000"):
            await translator.translate(texts, options("soft"))
        assert len(await translator.translate(texts, options("hard"))) == len(texts)
        assert len(await translator.translate(texts[1:], options("soft"))) == len(texts) - 1


async def test_tokens_of_languages_are_no_part_of_a_score() -> None:
    source, target = (4, 20, 21, EOS), (5, 30, 31, EOS)
    async with serving(FakeRunner(LIMITS), FakeScorer()) as engine:
        for hidden in (0, 1):
            request = ScoringRequest(
                source,
                target_ids=target,
                num_hidden_source=hidden,
                num_hidden_target=hidden,
                alignment="soft",
            )
            result = await submit(engine, request).result()
            [found] = result.hypotheses
            whole = FakeScorer().predict(ScoreItem(source, target))
            assert found.token_ids == list(target[hidden:-1])
            shown = whole.log_probabilities[hidden:].tolist()
            assert found.token_log_probabilities == shown
            assert found.log_probability == pytest.approx(sum(shown))
            assert found.attention is not None
            assert found.linked is not None
            assert found.attention.shape == (4 - hidden, 4 - hidden)
            assert found.attention.sum(axis=1) == pytest.approx(np.ones(4 - hidden))
            assert found.linked.tolist() == list(range(3 - hidden))

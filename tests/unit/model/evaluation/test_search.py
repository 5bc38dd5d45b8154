"""Properties of the reference search."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.bundle.config import ModelConfig
from model.bundle.limits import default_max_new_tokens
from model.bundle.search_limits import EarlyStopping
from model.evaluation.search import (
    BeamOptions,
    ReferenceBeam,
    ReferenceHypothesis,
    beam_search,
    best_tokens,
    greedy_search,
)
from model.network.transformer import Transformer

EOS = 3


def make(vocab_size: int, seed: int = 0, sharpness: float = 1.0, **overrides: Any) -> Transformer:
    """A random model; `sharpness` multiplies its logits, so that choices are clear or close."""
    fields: dict[str, Any] = dict(
        vocab_size=vocab_size,
        d_model=16,
        num_encoder_layers=1,
        num_decoder_layers=2,
        num_heads=2,
        ffn_dim=16,
        max_positions=40,
        embedding_tying="none",
        output_bias=True,
    )
    torch.manual_seed(seed)
    model = Transformer(ModelConfig.from_dict({**fields, **overrides})).eval()
    with torch.no_grad():
        model.output_projection.weight.mul_(sharpness)
    return model


def random_batch(rows: int, width: int, vocab_size: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Source ids [rows, width] of different lengths ending with EOS, and their mask."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, vocab_size, (rows, width), generator=generator)
    lengths = torch.randint(1, width + 1, (rows, 1), generator=generator)
    columns = torch.arange(width).expand(rows, -1)
    ids[columns == lengths - 1] = EOS
    ids[columns >= lengths] = 0
    return ids, columns < lengths


def token_log_probs(model: Transformer, source: Tensor, tokens: list[int]) -> list[float]:
    """Log-probabilities of `tokens` by one full forward pass in double precision."""
    target = torch.tensor([[model.config.bos_id, *tokens[:-1]]])
    with torch.no_grad():
        logits = model(source, target)[0].double()
    picked: list[float] = logits.log_softmax(-1)[range(len(tokens)), tokens].tolist()
    return picked


def close(found: ReferenceHypothesis, expected: ReferenceHypothesis) -> bool:
    """Equal tokens, and log-probabilities equal up to float32."""
    return (
        found.token_ids == expected.token_ids
        and found.finished == expected.finished
        and found.log_probs == pytest.approx(expected.log_probs, abs=1e-5)
        and found.score == pytest.approx(expected.score, abs=1e-5)
    )


@pytest.mark.parametrize("seed", range(5))
def test_greedy_takes_the_most_probable_token_each_time(seed: int) -> None:
    model = make(30, seed, sharpness=4.0)
    source, mask = random_batch(4, 6, 30, seed)
    for row, hypothesis in enumerate(greedy_search(model, source, mask, 12)):
        tokens = [*hypothesis.token_ids, *([EOS] if hypothesis.finished else [])]
        assert 1 <= len(tokens) <= 12
        assert hypothesis.finished or len(tokens) == 12
        target = torch.tensor([[model.config.bos_id, *tokens[:-1]]])
        with torch.no_grad():
            logits = model(source[row : row + 1], target, mask[row : row + 1])[0]
        assert logits.argmax(-1).tolist() == tokens
        assert EOS not in hypothesis.token_ids
        expected = token_log_probs(model, source[row : row + 1, : int(mask[row].sum())], tokens)
        assert hypothesis.log_probs == pytest.approx(expected, abs=1e-5)
        assert hypothesis.score == sum(hypothesis.log_probs)


def test_a_greedy_search_goes_on_from_the_tokens_that_it_has_to_begin_with() -> None:
    model = make(30, 1, sharpness=4.0)
    source, mask = random_batch(4, 6, 30, 1)
    limits, start = [12, 12, 2, 1], (7, 11)
    for row, found in enumerate(greedy_search(model, source, mask, limits, start)):
        tokens = [*found.token_ids, *([EOS] if found.finished else [])]
        assert tuple(tokens[:2]) == start[: limits[row]]
        assert found.finished or len(tokens) == limits[row]
        assert set(found.log_probs[:2]) == {0.0}
        target = torch.tensor([[model.config.bos_id, *tokens[:-1]]])
        with torch.no_grad():
            logits = model(source[row : row + 1], target, mask[row : row + 1])[0]
        assert logits.argmax(-1).tolist()[2:] == tokens[2:]


@pytest.mark.parametrize("early_stopping", ["first", "heuristic"])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("sharpness", [1.0, 6.0])
def test_a_beam_of_one_is_greedy_search(
    early_stopping: EarlyStopping, length_penalty: float, sharpness: float
) -> None:
    model = make(12, 3, sharpness)
    source, mask = random_batch(6, 5, 12)
    options = BeamOptions(1, length_penalty=length_penalty, early_stopping=early_stopping)
    for greedy, (beam,) in zip(
        greedy_search(model, source, mask, 15),
        beam_search(model, source, mask, options, 15),
        strict=True,
    ):
        assert beam.token_ids == greedy.token_ids
        assert beam.log_probs == pytest.approx(greedy.log_probs, abs=1e-12)
        assert beam.finished == greedy.finished


@pytest.fixture(scope="module")
def tiny() -> tuple[Transformer, Tensor, list[tuple[list[int], list[float]]]]:
    """A model of 5 words, a sentence, and every output of at most 4 tokens with its log-probs."""
    vocab_size, limit = 5, 4
    model = make(vocab_size, 1, sharpness=3.0)
    source = torch.tensor([[4, 1, 2, EOS]])
    others = [token for token in range(vocab_size) if token != EOS]
    every: list[tuple[list[int], list[float]]] = []
    for length in range(1, limit + 1):
        last_tokens = range(vocab_size) if length == limit else [EOS]  # cut, or ended
        bodies = itertools.product(others, repeat=length - 1)
        outputs = torch.tensor([[*body, last] for body in bodies for last in last_tokens])
        inputs = outputs.roll(1, dims=1)
        inputs[:, 0] = model.config.bos_id
        with torch.no_grad():
            logits = model(source.expand(len(outputs), -1), inputs).double()
        log_probs = logits.log_softmax(-1).gather(-1, outputs.unsqueeze(-1)).squeeze(-1)
        every += zip(outputs.tolist(), log_probs.tolist(), strict=True)
    assert len(every) == 1 + 4 + 16 + 64 * 5
    return model, source, every


@pytest.mark.parametrize("kind", ["power", "gnmt"])
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("early_stopping", ["heuristic", "first", "never"])
def test_a_huge_beam_is_exhaustive_search(
    tiny: tuple[Transformer, Tensor, list[tuple[list[int], list[float]]]],
    kind: Any,
    length_penalty: float,
    early_stopping: EarlyStopping,
) -> None:
    model, source, every = tiny
    options = BeamOptions(1000, 30, length_penalty, kind, early_stopping)

    (found,) = beam_search(model, source, None, options, 4)

    expected = []
    for tokens, log_probs in every:
        divisor = len(tokens) if kind == "power" else (5 + len(tokens)) / 6
        score = sum(log_probs) / divisor**length_penalty
        ended = tokens[-1] == EOS
        ids = tuple(tokens[:-1] if ended else tokens)
        expected.append(ReferenceHypothesis(ids, tuple(log_probs), score, ended))
    expected.sort(key=lambda hypothesis: -hypothesis.score)
    assert len(found) == 30
    for ours, theirs in zip(found, expected, strict=False):
        assert close(ours, theirs)


OPTIONS = [
    BeamOptions(2),
    BeamOptions(4, 4, 1.0, "power", "never"),
    BeamOptions(5, 3, 0.6, "gnmt", "first"),
    BeamOptions(5, 5, 0.0),
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: f"beam{options.beam_size}")
@pytest.mark.parametrize("sharpness", [1.0, 5.0])
def test_a_sentence_in_a_batch_is_translated_as_alone(
    options: BeamOptions, sharpness: float
) -> None:
    model = make(20, 2, sharpness).double()  # close calls must not hang on rounding
    source, mask = random_batch(7, 6, 20)
    limits = [9, 3, 12, 1, 7, 12, 12]
    together = beam_search(model, source, mask, options, limits)
    greedy = greedy_search(model, source, mask, limits)
    for row, limit in enumerate(limits):
        length = int(mask[row].sum())
        alone = source[row : row + 1, :length]
        (expected,) = beam_search(model, alone, None, options, limit)
        assert len(together[row]) == len(expected) == options.num_hypotheses
        assert all(map(close, together[row], expected))
        assert close(greedy[row], greedy_search(model, alone, None, limit)[0])


def test_the_default_limit_is_the_one_that_serving_uses() -> None:
    model = make(20, max_positions=60)
    with torch.no_grad():
        assert model.output_projection.bias is not None
        model.output_projection.bias[EOS] = -1e9  # it never ends by itself
    source, mask = random_batch(4, 30, 20)
    for search in (greedy_search, lambda *args: [h for (h,) in beam_search(*args)]):
        for length, hypothesis in zip(
            mask.sum(-1).tolist(), search(model, source, mask), strict=True
        ):
            assert len(hypothesis.token_ids) == default_max_new_tokens(length, 60)
            assert not hypothesis.finished


@pytest.mark.parametrize(
    ("limit", "message"),
    [(0, r"\[1, 40\], not 0"), (41, "not 41"), ([1, 2], "2 limits for 3 sentences")],
)
def test_a_limit_out_of_range_is_refused(limit: Any, message: str) -> None:
    model = make(10)
    source, mask = random_batch(3, 4, 10)
    for search in (
        lambda: greedy_search(model, source, mask, limit),
        lambda: beam_search(model, source, mask, None, limit),
    ):
        with pytest.raises(ValueError, match=message):
            search()


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"beam_size": 0}, "beam_size"),
        ({"num_hypotheses": 6}, "num_hypotheses"),
        ({"num_hypotheses": 0}, "num_hypotheses"),
        ({"length_penalty_kind": "sqrt"}, "length_penalty_kind"),
        ({"early_stopping": True}, "early_stopping"),
    ],
)
def test_bad_options_are_named(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        BeamOptions(**fields)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), vocab_size=st.integers(1, 12), count=st.integers(1, 14))
def test_best_tokens_orders_equals_by_id(data: st.DataObject, vocab_size: int, count: int) -> None:
    # Few distinct values, so that equals are everywhere, at the cut too.
    row = st.lists(st.sampled_from([0.0, 1.0, -2.0]), min_size=vocab_size, max_size=vocab_size)
    logits = data.draw(st.lists(row, min_size=1, max_size=3))
    ids, log_probs = best_tokens(torch.tensor(logits), count)
    for values, row_ids, row_log_probs in zip(logits, ids, log_probs, strict=True):
        order = sorted(range(vocab_size), key=lambda token: (-values[token], token))
        assert row_ids == order[:count]
        expected = torch.tensor(values).double().log_softmax(0)[row_ids].tolist()
        assert row_log_probs == pytest.approx(expected, abs=1e-6)


# --- One sentence's beam, with scripted probabilities ---------------------------------------------

A, B, C = 4, 5, 6


def play(beam: ReferenceBeam, choose: Callable[[tuple[int, ...]], dict[int, float]]) -> int:
    """Steps `beam` until it is done; `choose` gives the log-probabilities after some tokens."""
    steps = 0
    while not beam.done:
        rows = [list(choose(hypothesis.token_ids).items()) for hypothesis in beam.running]
        rows = [sorted(row, key=lambda item: (-item[1], item[0])) for row in rows]
        beam.advance(
            [[token for token, _ in row] for row in rows], [[p for _, p in row] for row in rows]
        )
        steps += 1
    return steps


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: f"beam{options.beam_size}")
@pytest.mark.parametrize("seed", range(6))
def test_search_is_what_the_rules_give_on_all_the_vocabulary(
    options: BeamOptions, seed: int
) -> None:
    """Without a cache, without a batch, and without taking only the best tokens of a row."""
    model = make(9, seed, sharpness=2.0).double()
    with torch.no_grad():
        assert model.output_projection.bias is not None
        model.output_projection.bias[EOS] = 1.0  # endings in the midst of the candidates
    source = torch.tensor([[4, 5, EOS]])

    def choose(tokens: tuple[int, ...]) -> dict[int, float]:
        target = torch.tensor([[model.config.bos_id, *tokens]])
        with torch.no_grad():
            return dict(enumerate(model(source, target)[0, -1].log_softmax(-1).tolist()))

    beam = ReferenceBeam(options, 8, EOS)
    play(beam, choose)
    (found,) = beam_search(model, source, None, options, 8)
    assert all(map(close, found, beam.finished))


def test_equal_candidates_go_by_beam_and_then_by_token() -> None:
    beam = ReferenceBeam(BeamOptions(2), 9, EOS)
    assert beam.advance([[A, B, C]], [[-1.0, -1.0, -1.0]]) == [(0, A), (0, B)]
    grown = beam.advance([[B, C], [A, C]], [[-2.0, -2.0], [-2.0, -2.0]])
    assert grown == [(0, B), (0, C)]
    assert [hypothesis.token_ids for hypothesis in beam.running] == [(A, B), (A, C)]


@pytest.mark.parametrize(
    ("early_stopping", "length_penalty", "steps"),
    [("first", 1.0, 1), ("heuristic", 1.0, 1), ("never", 1.0, 3), ("never", 0.0, 1)],
)
def test_when_a_sentence_stops(
    early_stopping: EarlyStopping, length_penalty: float, steps: int
) -> None:
    """A short ending comes first; a longer one is better by its mean, which only "never" finds."""

    def choose(tokens: tuple[int, ...]) -> dict[int, float]:
        if not tokens:
            return {EOS: -1.0, A: -1.2}
        return {B: -0.1, EOS: -9.0} if len(tokens) == 1 else {EOS: -0.1, C: -9.0}

    options = BeamOptions(1, length_penalty=length_penalty, early_stopping=early_stopping)
    beam = ReferenceBeam(options, 4, EOS)
    assert play(beam, choose) == steps
    best = beam.finished[0]
    assert best.token_ids == ((A, B) if steps == 3 else ())
    assert best.score == pytest.approx(-1.4 / 3 if steps == 3 else -1.0)

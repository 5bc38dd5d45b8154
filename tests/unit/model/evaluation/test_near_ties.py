"""The search whose near ties may go either way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from model.evaluation.search import BeamOptions, ReferenceBeam
from tests.near_ties import Tokens, outcomes

VOCAB_SIZE, EOS, LIMIT = 12, 0, 8


class RandomModel:
    """Log-probabilities that are a function of the prefix.

    Args:
        seed: random seed of all scores.
        tie: after this prefix, the second best token is this little worse than the best.
    """

    def __init__(self, seed: int, tie: tuple[Tokens, float] | None = None) -> None:
        self._seed = seed
        self._tie = tie

    def __call__(self, prefixes: Sequence[Tokens]) -> torch.Tensor:
        return torch.stack([self._row(prefix) for prefix in prefixes])

    def _row(self, prefix: Tokens) -> torch.Tensor:
        draw = np.random.default_rng([self._seed, *prefix])
        row = torch.from_numpy(draw.normal(0.0, 2.0, VOCAB_SIZE)).log_softmax(-1)
        if self._tie is not None and prefix == self._tie[0]:
            best, second = row.topk(2).indices.tolist()
            row[second] = row[best] - self._tie[1]
        return row


def beam(size: int) -> ReferenceBeam:
    return ReferenceBeam(BeamOptions(size), LIMIT, EOS)


def reference(model: RandomModel, size: int) -> Tokens:
    search = beam(size)
    while not search.done:
        rows = model([one.token_ids for one in search.running])
        values, ids = rows.topk(2 * size)
        search.advance(ids.tolist(), values.tolist())
    return search.finished[0].token_ids


@pytest.mark.parametrize("size", [1, 2, 4])
def test_without_near_ties_there_is_the_reference_search_alone(size: int) -> None:
    for seed in range(20):
        model = RandomModel(seed)
        assert list(outcomes(beam(size), model, 1e-12)) == [reference(model, size)]


def test_a_near_tie_goes_either_way() -> None:
    for seed in range(20):
        ways = [RandomModel(seed, ((), tie)) for tie in (1e-7, -1e-7)]
        expected = {reference(model, 1) for model in ways}
        assert len(expected) == 2
        for model in ways:
            assert outcomes(beam(1), model, 1e-6).keys() == expected

"""Mixtures: shares by temperature, and an even, repeatable pace through every corpus."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.data.corpus import ParallelText
from model.data.mixture import Draws, plan_draws, shares

sizes = st.lists(st.integers(1, 10_000), min_size=1, max_size=6)


@given(sizes, st.floats(1.0, 20.0))
def test_shares_follow_the_root_of_the_size(sizes: list[int], temperature: float) -> None:
    found = shares(sizes, [1.0] * len(sizes), temperature)
    assert found.sum() == pytest.approx(1.0)
    for size, share in zip(sizes, found, strict=True):
        expected = (size / sizes[0]) ** (1.0 / temperature)
        assert share / found[0] == pytest.approx(expected)


def test_a_weight_multiplies_the_share() -> None:
    assert shares([100, 100], [3.0, 1.0], 2.0).tolist() == pytest.approx([0.75, 0.25])


def test_a_corpus_of_long_lines_gives_fewer_of_them_for_the_same_share_of_the_text() -> None:
    short = ParallelText(["a"] * 40, ["b" * 10] * 40)
    long = ParallelText(["a"] * 10, ["b" * 40] * 10)
    draws = plan_draws([short, long], [1.0, 1.0], temperature=5.0, epoch_pairs=50, seed=1)
    assert draws.shares == pytest.approx([0.5, 0.5])
    assert draws.counts == [40, 10]


def test_the_smallest_corpus_gives_a_pair_to_every_epoch() -> None:
    corpora = [ParallelText(["a"] * n, ["b"] * n) for n in (10_000, 1)]
    draws = plan_draws(corpora, [1.0, 1.0], temperature=1.0, epoch_pairs=20, seed=1)
    assert draws.counts == [20, 1]


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 50)), min_size=1, max_size=4),
    st.integers(0, 5),
)
def test_no_pair_is_drawn_again_before_all_others_of_its_corpus(
    parts: list[tuple[int, int]], seed: int
) -> None:
    draws = Draws([size for size, _ in parts], [count for _, count in parts], [], seed)
    epochs = [draws.epoch(number) for number in range(4)]
    offset = 0
    for size, count in parts:
        seen = np.zeros(size, int)
        for epoch in epochs:
            own = epoch[(epoch >= offset) & (epoch < offset + size)]
            assert len(own) == count
            for index in own:
                seen[index - offset] += 1
                assert seen.max() - seen.min() <= 1
        offset += size


def test_epochs_differ_and_each_is_always_the_same() -> None:
    draws = Draws([100, 50], [20, 70], [], seed=3)
    assert np.array_equal(draws.epoch(5), Draws([100, 50], [20, 70], [], seed=3).epoch(5))
    assert not np.array_equal(draws.epoch(5), draws.epoch(6))
    assert not np.array_equal(draws.epoch(5), Draws([100, 50], [20, 70], [], seed=4).epoch(5))

"""Batches of a mixture: their size, their order, and the shares of corpora."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.data.mixture import shares
from model.gpu.batches import MixedBatches
from model.gpu.text import StoredCorpus, TokenStore
from tests.unit.model.gpu.small import EOS, PAD, random_corpus, side, store


def batches_of(
    tokens: TokenStore,
    groups: list[tuple[float, list[StoredCorpus]]],
    *,
    batch_tokens: int = 200,
    longest: int = 30,
    temperature: float = 2.0,
    seed: int = 1,
) -> MixedBatches:
    limits = {"batch_tokens": batch_tokens, "longest": longest, "seed": seed}
    return MixedBatches(tokens, groups, temperature=temperature, **limits)


def rows_of(ids: Tensor) -> list[list[int]]:
    """The rows without padding, which is on the right only; each ends with its only EOS."""
    rows = []
    for row in ids.tolist():
        end = row.index(EOS)
        assert set(row[end + 1 :]) <= {PAD}
        assert PAD not in row[:end]
        rows.append(row[:end])
    return rows


@given(
    batch_tokens=st.integers(20, 300),
    longest=st.integers(8, 20),
    prefix=st.lists(st.integers(400, 402), max_size=2),
)
@settings(max_examples=5, deadline=None)
def test_a_batch_has_whole_pairs_within_its_limits(
    batch_tokens: int, longest: int, prefix: list[int]
) -> None:
    tokens = store()
    corpus = random_corpus(tokens, "one", 300, longest=24, seed=1)
    other = random_corpus(tokens, "two", 100, longest=10, seed=3)
    given_pairs = {
        (tuple(source), tuple(target))
        for part in (corpus, other)
        for source, target in zip(
            tokens.tokens(part.sources), tokens.tokens(part.targets), strict=True
        )
    }
    groups = [(0.5, [corpus.with_prefix(*prefix)]), (0.5, [other.with_prefix(*prefix)])]
    mixture = batches_of(tokens, groups, batch_tokens=batch_tokens, longest=longest)
    seen = set()
    for sources, targets in itertools.islice(mixture, 60):
        for ids in (sources, targets):
            assert ids.shape[1] <= longest
            assert ids.numel() <= batch_tokens or len(ids) == 1
        for source, target in zip(rows_of(sources), rows_of(targets), strict=True):
            assert source[: len(prefix)] == prefix
            seen.add((tuple(source[len(prefix) :]), tuple(target)))
    assert seen <= given_pairs


def test_an_epoch_has_every_pair_of_a_small_corpus_alike_often() -> None:
    tokens = store()
    corpus = random_corpus(tokens, "one", 40, longest=9, seed=1)
    mixture = batches_of(tokens, [(1.0, [corpus])], batch_tokens=300)
    counts: Counter[tuple[int, ...]] = Counter()
    for sources, targets in mixture:
        assert max(sources.numel(), targets.numel()) <= 300
        counts.update(map(tuple, rows_of(sources)))
        if counts.total() >= 20 * len(corpus):
            break
    expected = Counter(map(tuple, tokens.tokens(corpus.sources)))
    assert counts == {source: 20 * count for source, count in expected.items()}


def test_groups_and_corpora_have_their_shares_of_the_target_tokens() -> None:
    tokens = store()
    parts = [
        random_corpus(tokens, "a", 400, longest=20, seed=1, weight=3.0),
        random_corpus(tokens, "b", 100, longest=5, seed=3),
        random_corpus(tokens, "c", 300, longest=12, seed=5),
    ]
    # The first token of a source says which corpus it is from.
    parts = [part.with_prefix(400 + number) for number, part in enumerate(parts)]
    mixture = batches_of(tokens, [(0.7, parts[:2]), (0.3, parts[2:])], batch_tokens=2000)
    seen = np.zeros(3)
    for sources, targets in itertools.islice(mixture, 2500):
        for source, target in zip(sources[:, 0].tolist(), rows_of(targets), strict=True):
            seen[source - 400] += len(target) + 1
    sizes = [part.num_target_tokens for part in parts[:2]]
    first = 0.7 * shares(sizes, [3.0, 1.0], 2.0)
    assert mixture.shares == pytest.approx([*first, 0.3])
    assert seen / seen.sum() == pytest.approx(mixture.shares, abs=0.02)


def test_what_is_left_out_takes_no_share() -> None:
    tokens = store()
    kept = random_corpus(tokens, "kept", 50, longest=5, seed=1)
    places = tokens.add(side([[7] * 40]))
    long = StoredCorpus("long", places, places)
    mixture = batches_of(tokens, [(0.5, [kept, long]), (0.3, [long]), (0.2, [])])
    assert [corpus.name for corpus in mixture.corpora] == ["kept"]
    assert mixture.shares.tolist() == [1.0]
    assert batches_of(tokens, [(1.0, [kept]), (0.0, [kept])]).shares.tolist() == [1.0]
    with pytest.raises(ValueError, match="no corpus has pairs of at most 30 tokens"):
        batches_of(tokens, [(1.0, [long])])


def test_a_seed_decides_the_batches() -> None:
    tokens = store()
    group = [(1.0, [random_corpus(tokens, "one", 90, longest=9, seed=1)])]
    one, same, other = (
        [pair[0].tolist() for pair in itertools.islice(batches_of(tokens, group, seed=seed), 5)]
        for seed in (1, 1, 2)
    )
    assert one == same
    assert one != other

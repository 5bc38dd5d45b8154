"""Corpora of unequal size, drawn by temperature instead of by size.

Where corpora are taken as they are, the largest one decides what the model learns. Temperature
sampling draws corpus i with a probability that grows with the root of its size: p_i ~ D_i^(1/T)
(Arivazhagan et al., 2019, "Massively Multilingual Neural Machine Translation in the Wild", section
4.2; mBART, Liu et al., 2020, section 2.1, has the same with alpha = 1/T). T = 1 is in proportion to
size, a large T is uniform. A weight, by hand, multiplies that.

Sizes and shares are measured in characters of the target side: it is text that the model sees, not
lines, and a line of documentation is several times as long as one of small talk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model.data.corpus import Int64, ParallelText


def shares(sizes: Sequence[float], weights: Sequence[float], temperature: float) -> np.ndarray:
    """[corpora] the share of each corpus in what the model sees; they add up to 1.

    Args:
        sizes: the corpora's sizes, in any one unit.
        weights: factors by hand, 1 for none.
        temperature: T, at least 1.
    """
    wanted = np.asarray(weights, np.float64) * np.asarray(sizes, np.float64) ** (1.0 / temperature)
    return np.asarray(wanted / wanted.sum())


@dataclass(frozen=True)
class Draws:
    """The pairs that each epoch draws from each corpus.

    An epoch is a fixed number of pairs, not a pass over the text. A corpus is gone through in a
    random order of its own, on from where the last epoch ended, and in a new order once all of it
    was seen: no pair is drawn a second time before every other one of its corpus.

    Attributes:
        sizes: pairs in each corpus.
        counts: pairs that an epoch draws from each corpus.
        shares: shares of an epoch's text, by corpus.
        seed: the same seed draws the same pairs.
    """

    sizes: Sequence[int]
    counts: Sequence[int]
    shares: Sequence[float]
    seed: int

    def epoch(self, number: int) -> Int64:
        """Indices of the pairs of epoch `number` (from 0) in the concatenated corpora."""
        drawn = []
        offset = 0
        for corpus, (size, count) in enumerate(zip(self.sizes, self.counts, strict=True)):
            drawn.append(offset + self._of_corpus(corpus, size, number * count, count))
            offset += size
        return np.concatenate(drawn)

    def _of_corpus(self, corpus: int, size: int, first: int, count: int) -> Int64:
        """The `count` draws from number `first` on, of the endless sequence of random orders."""
        passes = range(first // size, (first + count - 1) // size + 1)
        orders = [np.random.default_rng([self.seed, corpus, p]).permutation(size) for p in passes]
        start = first - passes[0] * size
        return np.concatenate(orders)[start : start + count]


def plan_draws(
    corpora: Sequence[ParallelText],
    weights: Sequence[float],
    *,
    temperature: float,
    epoch_pairs: int,
    seed: int,
) -> Draws:
    """The number of pairs that an epoch of about `epoch_pairs` takes from each corpus.

    Args:
        corpora: the training text, none of them empty.
        temperature: T; see `shares`.
        epoch_pairs: pairs in an epoch, up to rounding; each corpus gives at least one.
    """
    characters = [sum(map(len, text.targets)) for text in corpora]
    wanted = shares(characters, weights, temperature)
    return draws_of(wanted, characters, [len(text) for text in corpora], epoch_pairs, seed)


def draws_of(
    wanted: np.ndarray, sizes: Sequence[float], lengths: Sequence[int], epoch_pairs: int, seed: int
) -> Draws:
    """The draws of an epoch of about `epoch_pairs` pairs, in which corpora have the wanted shares.

    Args:
        wanted: [corpora] shares of the text; they add up to 1.
        sizes: the corpora's sizes, in the unit of the shares.
        lengths: pairs in each corpus.
        epoch_pairs: pairs in an epoch, up to rounding; each corpus gives at least one.
    """
    # A corpus of long lines needs fewer of them for the same share of the text.
    pairs = wanted * [length / size for length, size in zip(lengths, sizes, strict=True)]
    counts = np.maximum(1, np.rint(epoch_pairs * pairs / pairs.sum())).astype(int)
    return Draws(lengths, counts.tolist(), wanted.tolist(), seed)

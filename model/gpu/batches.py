"""Endless batches of a mixture of corpora."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from model.data.corpus import Int64
from model.data.mixture import draws_of, shares
from model.gpu.text import StoredCorpus, StoredSide, TokenStore

# Pairs are sorted by width within an epoch. Many make even batches; more passes add nothing.
_EPOCH_PAIRS = 300_000
_MOST_PASSES = 20


class MixedBatches:
    """Groups of corpora, each with its share of the target tokens.

    Within a group, temperature and weights decide, as in `model.data.mixture`.

    Args:
        groups: shares, and the corpora that have them; their prefixes are of the same length.
        temperature: 1 draws in proportion to size.
        batch_tokens: tokens on each side of a batch, padding counted.
        longest: limit of a side in tokens; longer pairs and pairs with an empty side are left out.
        seed: the same seed gives the same batches.

    Attributes:
        corpora: the corpora of all groups that have pairs.
        shares: [corpora] shares of the target tokens; they add up to 1.

    Raises:
        ValueError: no pair is left.
    """

    def __init__(
        self,
        store: TokenStore,
        groups: Sequence[tuple[float, Sequence[StoredCorpus]]],
        *,
        temperature: float,
        batch_tokens: int,
        longest: int,
        seed: int,
    ) -> None:
        self._store = store
        self._batch_tokens = batch_tokens
        self._seed = seed
        self.corpora: list[StoredCorpus] = []
        wanted: list[float] = []
        for share, group in groups:
            kept = [part for corpus in group if len(part := corpus.not_longer_than(longest))]
            if kept and share > 0.0:
                sizes = [corpus.num_target_tokens for corpus in kept]
                weights = [corpus.weight for corpus in kept]
                wanted += (share * shares(sizes, weights, temperature)).tolist()
                self.corpora += kept
        if not self.corpora:
            raise ValueError(f"no corpus has pairs of at most {longest} tokens a side")
        self.shares = np.array(wanted) / sum(wanted)
        sizes = [corpus.num_target_tokens for corpus in self.corpora]
        lengths = [len(corpus) for corpus in self.corpora]
        epoch_pairs = min(_EPOCH_PAIRS, _MOST_PASSES * sum(lengths))
        self._draws = draws_of(self.shares, sizes, lengths, epoch_pairs, seed)
        self._sources = StoredSide.joined([corpus.sources for corpus in self.corpora])
        self._targets = StoredSide.joined([corpus.targets for corpus in self.corpora])
        self._widths = np.concatenate([corpus.widths() for corpus in self.corpora])
        prefixes = np.array([corpus.prefix for corpus in self.corpora], np.int64)
        self._prefixes = np.repeat(prefixes, lengths, axis=0)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Source ids [B, S] and target ids [B, T], without BOS."""
        number = 0
        while True:
            generator = np.random.default_rng([self._seed, number])
            drawn = self._draws.epoch(number)
            # Pairs of one width are in another order, and in other batches, every time.
            order = drawn[np.argsort(self._widths[drawn] + generator.random(len(drawn)))]
            bounds = list(self._bounds(self._widths[order]))
            for chosen in generator.permutation(len(bounds)):
                yield self._batch(order[slice(*bounds[chosen])])
            number += 1

    def _bounds(self, widths: Int64) -> Iterator[tuple[int, int]]:
        """The bounds of each batch in a list of pairs of growing width."""
        first = 0
        while first < len(widths):
            # The last pair is the widest one, and all are padded to its width.
            some = widths[first : first + self._batch_tokens]
            fits = np.arange(1, len(some) + 1) * some <= self._batch_tokens
            count = max(1, int(fits.sum()))
            yield first, first + count
            first += count

    def _batch(self, indices: Int64) -> tuple[Tensor, Tensor]:
        sources = self._store.padded(self._sources.at(indices), self._prefixes[indices])
        return sources, self._store.padded(self._targets.at(indices))

"""Parallel text on a device: token ids of all sentences in one tensor, pairs as places in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from model.data.corpus import Int64
from model.data.packed_corpus import PackedSide

MOST_PIECES = 2**15


@dataclass(frozen=True)
class StoredSide:
    """Sentences in a store.

    Attributes:
        starts: [sentences] index of the first token.
        lengths: [sentences] tokens, without EOS.
    """

    starts: Int64
    lengths: Int64

    @classmethod
    def joined(cls, sides: Sequence[StoredSide]) -> StoredSide:
        """The sentences of all sides, in order."""
        return cls(
            np.concatenate([side.starts for side in sides]),
            np.concatenate([side.lengths for side in sides]),
        )

    def __len__(self) -> int:
        return len(self.starts)

    def at(self, indices: Int64) -> StoredSide:
        """The sentences at `indices`, in that order."""
        return StoredSide(self.starts[indices], self.lengths[indices])


@dataclass(frozen=True)
class StoredCorpus:
    """Sentence pairs of one kind.

    Attributes:
        weight: factor on the corpus's share of a mixture.
        prefix: ids before every source.
    """

    name: str
    sources: StoredSide
    targets: StoredSide
    weight: float = 1.0
    prefix: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def num_target_tokens(self) -> int:
        """Tokens of all targets, EOS counted."""
        return int((self.targets.lengths + 1).sum())

    def at(self, indices: Int64) -> StoredCorpus:
        """The pairs at `indices`, in that order."""
        return replace(self, sources=self.sources.at(indices), targets=self.targets.at(indices))

    def widths(self) -> Int64:
        """[pairs] tokens of the longer side, prefix and EOS counted."""
        return np.maximum(self.sources.lengths + len(self.prefix), self.targets.lengths) + 1

    def not_longer_than(self, longest: int) -> StoredCorpus:
        """The pairs whose sides have a token each and, with prefix and EOS, at most `longest`."""
        shortest = np.minimum(self.sources.lengths, self.targets.lengths)
        return self.at(np.flatnonzero((self.widths() <= longest) & (shortest > 0)))

    def with_prefix(self, *prefix: int) -> StoredCorpus:
        """The same pairs with other ids before the sources."""
        return replace(self, prefix=prefix)

    def reversed(self) -> StoredCorpus:
        """The same pairs for the other direction, without a prefix."""
        return replace(self, sources=self.targets, targets=self.sources, prefix=())


class TokenStore:
    """Token ids of many sentences, one after another, on the device that reads them.

    Args:
        device: the device that holds the ids.
        pad_id, eos_id: special tokens of the vocabulary.
    """

    def __init__(self, device: torch.device, *, pad_id: int, eos_id: int) -> None:
        self.device = device
        self.pad_id, self.eos_id = pad_id, eos_id
        self._ids = torch.zeros(0, dtype=torch.int16, device=device)

    def add(self, side: PackedSide) -> StoredSide:
        """Append sentences; returns their places.

        Raises:
            ValueError: an id is not below `MOST_PIECES`.
        """
        if int(side.ids.max(initial=0)) >= MOST_PIECES:
            raise ValueError(f"a token id is not below {MOST_PIECES}")
        return self.add_ids(torch.from_numpy(side.ids.astype(np.int16)), side.lengths())

    def add_ids(self, ids: Tensor, lengths: Int64) -> StoredSide:
        """Append sentences, given as all their tokens and the number of tokens of each."""
        starts = len(self._ids) + np.cumsum(lengths) - lengths
        self._ids = torch.cat((self._ids, ids.to(self.device, torch.int16)))
        return StoredSide(starts, lengths)

    def padded(self, side: StoredSide, prefixes: Int64 | None = None) -> Tensor:
        """[sentences, longest + P + 1] token ids with EOS, padded on the right.

        Args:
            prefixes: [sentences, P] ids before each sentence.
        """
        before = 0 if prefixes is None else prefixes.shape[1]
        width = int(side.lengths.max(initial=0)) + before + 1
        places = torch.from_numpy(np.stack((side.starts - before, side.lengths + before)))
        starts, ends = places.to(self.device)[:, :, None]
        columns = torch.arange(width, device=self.device)
        # Places beyond a sentence hold tokens of its neighbours, or lie outside: none is kept.
        found = self._ids[(starts + columns).clamp_(0, len(self._ids) - 1)].long()
        found = found.masked_fill(columns > ends, self.pad_id)
        found = found.masked_fill(columns == ends, self.eos_id)
        if prefixes is not None and before:
            found[:, :before] = torch.from_numpy(prefixes).to(self.device)
        return found

    def tokens(self, side: StoredSide) -> list[list[int]]:
        """The ids of each sentence, without EOS."""
        ids = self._ids.cpu().numpy()
        places = zip(side.starts.tolist(), side.lengths.tolist(), strict=True)
        return [ids[start : start + length].tolist() for start, length in places]

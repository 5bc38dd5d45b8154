"""The shortlist of a bundle: the target tokens that a sentence may produce, by its source tokens.

These are the first ids of the vocabulary and the listed ids of each source token. The file, little
endian: eight bytes `MAGIC`; uint64 first_num, num_sources and num_ids; uint64 offsets
[num_sources + 1]; uint32 ids [num_ids], where those of source token s are
ids[offsets[s]:offsets[s + 1]].
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from model.bundle.bundle import Bundle
from model.bundle.manifest import BundleCorruptError

SHORTLIST_FILE = "shortlist.bin"
MAGIC = b"DRGLIST1"
_HEADER = struct.Struct("<8s3Q")

Ids = npt.NDArray[np.int64]


class ShortlistError(ValueError):
    """A shortlist can't be read, or is for another vocabulary; the message names the field."""


@dataclass(frozen=True, eq=False)
class Shortlist:
    """The listed target ids of every source token.

    Attributes:
        first_num: number of ids, from 0, that every sentence may produce.
        offsets: [num_sources + 1] where the ids of each source token begin.
        ids: the listed ids, one source token after another.
        always: further ids that every sentence may produce.
        never: ids that no sentence may produce, even if they are listed.
    """

    first_num: int
    offsets: npt.NDArray[Any]
    ids: npt.NDArray[Any]
    always: tuple[int, ...] = ()
    never: tuple[int, ...] = ()

    @classmethod
    def of(cls, first_num: int, lists: Sequence[Sequence[int]]) -> Shortlist:
        """Make a shortlist from the listed ids of each source token."""
        sources = np.repeat(np.arange(len(lists)), [len(ids) for ids in lists])
        targets = np.fromiter((i for ids in lists for i in ids), np.int64, len(sources))
        return cls.of_pairs(first_num, sources, targets, len(lists))

    @classmethod
    def of_pairs(cls, first_num: int, sources: Ids, targets: Ids, num_sources: int) -> Shortlist:
        """Make a shortlist from pairs of a source token and a target token, in any order."""
        width = int(targets.max(initial=0)) + 1
        keys = np.unique(sources * width + targets)
        counts = np.bincount(keys // width, minlength=num_sources)
        return cls(first_num, np.concatenate(([0], np.cumsum(counts))), keys % width)

    def pairs(self) -> tuple[Ids, Ids]:
        """All pairs of a source token and one of its listed target tokens."""
        ends = self.offsets.astype(np.int64)
        counts = ends[1:] - ends[:-1]
        return np.repeat(np.arange(len(counts)), counts), self.ids.astype(np.int64)

    @classmethod
    def parse(cls, content: bytes | memoryview, vocab_size: int) -> Shortlist:
        """Parse a file's content, which is not copied.

        Raises:
            ShortlistError: it is damaged, or its ids are not those of `vocab_size` tokens.
        """
        if len(content) < _HEADER.size:
            raise ShortlistError("is cut off: it has no header")
        magic, first_num, num_sources, num_ids = _HEADER.unpack_from(content)
        if magic != MAGIC:
            raise ShortlistError(f"is no shortlist: it begins with {magic!r}, not {MAGIC!r}")
        if num_sources != vocab_size:
            raise ShortlistError(
                f"lists ids for {num_sources:,} source tokens, but the vocabulary has "
                f"{vocab_size:,}"
            )
        if first_num > vocab_size:
            raise ShortlistError(
                f"first_num is {first_num:,}, but the vocabulary has {vocab_size:,} tokens"
            )
        wanted = _HEADER.size + 8 * (num_sources + 1) + 4 * num_ids
        if len(content) != wanted:
            raise ShortlistError(
                f"has {len(content):,} bytes, but its header asks for {wanted:,} "
                f"(num_ids {num_ids:,})"
            )
        offsets = np.frombuffer(content, "<u8", num_sources + 1, _HEADER.size)
        ids = np.frombuffer(content, "<u4", num_ids, _HEADER.size + offsets.nbytes)
        check_lists(offsets, ids, vocab_size)
        return cls(int(first_num), offsets.astype(np.int64), ids)

    def to_bytes(self) -> bytes:
        """The content of the file."""
        header = _HEADER.pack(MAGIC, self.first_num, len(self.offsets) - 1, len(self.ids))
        return b"".join(
            (header, self.offsets.astype("<u8").tobytes(), self.ids.astype("<u4").tobytes())
        )

    def target_ids(self, source_ids: Iterable[int], added_ids: Iterable[int] = ()) -> Ids:
        """The ids that a sentence may produce, in ascending order.

        Args:
            added_ids: further ids, of a forced beginning for example.
        """
        # As np.unique, which takes several times as long.
        is_listed = self._is_always_listed.copy()
        parts = [self.ids[self.offsets[i] : self.offsets[i + 1]] for i in set(source_ids)]
        is_listed[np.concatenate([*parts, np.array([*added_ids], np.uint32)])] = True
        is_listed[self._never] = False
        return is_listed.nonzero()[0]

    @cached_property
    def _is_always_listed(self) -> npt.NDArray[np.bool_]:
        """Whether every sentence may produce an id, for each id."""
        largest = max(self.ids.max(initial=0), *self.always, *self.never, 0)
        is_listed = np.zeros(max(len(self.offsets) - 1, self.first_num, largest + 1), np.bool_)
        is_listed[: self.first_num] = True
        is_listed[[*self.always]] = True
        return is_listed

    @cached_property
    def _never(self) -> Ids:
        return np.array(self.never, np.int64)


def check_lists(offsets: npt.NDArray[Any], ids: npt.NDArray[Any], vocab_size: int) -> None:
    """Check that the offsets are those of the ids, and these below the vocabulary's size.

    Raises:
        ShortlistError: they are not.
    """
    if offsets[0] != 0 or offsets[-1] != len(ids) or (offsets[1:] < offsets[:-1]).any():
        raise ShortlistError(
            f"has offsets that do not ascend from 0 to the number of ids, {len(ids):,}"
        )
    if len(ids) and ids.max() >= vocab_size:
        raise ShortlistError(
            f"lists the id {ids.max():,}, but the vocabulary has {vocab_size:,} tokens"
        )


def load_shortlist(bundle: Bundle) -> Shortlist | None:
    """The shortlist of a bundle, mapped into memory; None if it has none.

    Raises:
        BundleCorruptError: its file can't be used.
    """
    entry = bundle.manifest.get("shortlist")
    if entry is None:
        return None
    file = bundle.path / str(entry["file"])
    try:
        content = memoryview(bundle.files.mapped(file)) if bundle.files.size(file) else b""
        found = Shortlist.parse(content, bundle.config.vocab_size)
    except (ShortlistError, OSError) as exc:
        raise BundleCorruptError(f"{file} {exc}: copy the bundle again, or make it again") from exc
    return usable(found, bundle)


def usable(shortlist: Shortlist, bundle: Bundle) -> Shortlist:
    """The shortlist without tokens that the bundle's search never produces, and with EOS."""
    config = bundle.config
    forbidden = () if config.forbidden_id is None else (config.forbidden_id,)
    never = (*forbidden, *bundle.search.get("suppressed_ids", ()))
    return replace(shortlist, always=(config.eos_id,), never=never)

"""A student's shortlist, `lex.50.50.*.s2t.bin`.

Little endian: uint64 magic, checksum, firstNum, bestNum, number of offsets, number of ids; then
the offsets (uint64, one for each source token and one more) and the ids (uint32). The checksum is
written, but not compared. See `src/data/shortlist.cpp` of Marian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from export.errors import ExportError
from export.marian.binary import read_compressed
from model.bundle.shortlist import Shortlist, ShortlistError, check_lists

LEXICON_MAGIC = 0xF11A48D5013417F5
_HEADER = struct.Struct("<6Q")


def read_lexicon(file: Path, num_sources: int, num_targets: int) -> Shortlist:
    """The shortlist in a file.

    Args:
        file: the file, also compressed.
        num_sources: number of source pieces.
        num_targets: number of target pieces.

    Raises:
        ExportError: it is damaged, or for other vocabularies; names the field.
    """
    content = read_compressed(file)
    if len(content) < _HEADER.size:
        raise ExportError(f"{file} is cut off: it has {len(content)} bytes and no header")
    magic, _, first_num, _, num_offsets, num_ids = _HEADER.unpack_from(content)
    if magic != LEXICON_MAGIC:
        raise ExportError(
            f"{file} is no binary shortlist: it begins with {magic:#x}, not {LEXICON_MAGIC:#x}"
        )
    if num_offsets != num_sources + 1:
        raise ExportError(
            f"{file} is for another vocabulary: it has {num_offsets:,} offsets, but the "
            f"{num_sources:,} source pieces need {num_sources + 1:,}"
        )
    if first_num > num_targets:
        raise ExportError(
            f"{file}: firstNum is {first_num:,}, but there are {num_targets:,} target pieces"
        )
    wanted = _HEADER.size + 8 * num_offsets + 4 * num_ids
    if len(content) < wanted:
        raise ExportError(
            f"{file} is cut off or damaged: its header asks for {wanted:,} bytes "
            f"({num_ids:,} ids), but it has {len(content):,}"
        )
    offsets = np.frombuffer(content, "<u8", num_offsets, _HEADER.size)
    ids = np.frombuffer(content, "<u4", num_ids, _HEADER.size + offsets.nbytes)
    try:
        check_lists(offsets, ids, num_targets)
    except ShortlistError as exc:
        raise ExportError(f"{file} {exc}") from exc
    return Shortlist(int(first_num), offsets.astype(np.int64), ids)


def lexicon_bytes(shortlist: Shortlist, order: Sequence[int]) -> bytes:
    """The content of a file.

    Args:
        shortlist: a shortlist without first ids, for one vocabulary of both languages.
        order: its ids, in the order of the student's; others are left out.
    """
    place = np.full(len(shortlist.offsets) - 1, -1)
    place[order] = np.arange(len(order))
    sources, targets = (place[ids] for ids in shortlist.pairs())
    kept = (sources >= 0) & (targets >= 0)
    found = Shortlist.of_pairs(0, sources[kept], targets[kept], len(order))
    counts = found.offsets[1:] - found.offsets[:-1]
    fields = (0, int(counts.max()), len(found.offsets), len(found.ids))
    content = struct.pack("<4Q", *fields) + found.offsets.astype("<u8").tobytes()
    content += found.ids.astype("<u4").tobytes()
    return struct.pack("<2Q", LEXICON_MAGIC, _checksum(content)) + content


def _checksum(content: bytes) -> int:
    """Marian's hash of the 64-bit words; Firefox's engine and slimt compare it."""
    mask, found = 2**64 - 1, 0
    for (word,) in struct.iter_unpack("<Q", content[: len(content) // 8 * 8]):
        found ^= (word + 0x9E3779B9 + (found << 6) + (found >> 2)) & mask
    return found

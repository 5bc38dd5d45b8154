"""Reads a student's shortlist, `lex.50.50.*.s2t.bin`.

Little endian: uint64 magic, checksum, firstNum, bestNum, number of offsets, number of ids; then
the offsets (uint64, one for each source token and one more) and the ids (uint32). The checksum is
not compared. See `src/data/shortlist.cpp` of Marian.
"""

from __future__ import annotations

import struct
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

"""Results as bytes: compact, and checked when they are read, since others can write to a store."""

from __future__ import annotations

import struct
import zlib
from array import array
from typing import TypeVar

import numpy as np

from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Hypothesis,
    ScoringRequest,
)

# Version of the format, finish reason, number of hypotheses; before them, a checksum of key and
# value, so that a value under another key is noticed.
_HEAD = struct.Struct("<IBBH")
_CHECKSUM = struct.Struct("<I")
_VERSION = 1
# Numbers of tokens, log-probabilities and links (-1 without links), ended, log-probability, score.
_HYPOTHESIS = struct.Struct("<iii?dd")
N = TypeVar("N", int, float)

_REASONS = (FinishReason.EOS, FinishReason.LENGTH)


def is_complete(result: GenerationResult) -> bool:
    """Whether a result is that of a whole search: not cancelled, late or failed."""
    return result.error is None and result.finish_reason in _REASONS and bool(result.hypotheses)


def encode_result(key: bytes, result: GenerationResult) -> bytes:
    """The bytes of a complete result."""
    count = len(result.hypotheses)
    parts = [_HEAD.pack(0, _VERSION, _REASONS.index(result.finish_reason), count)[4:]]
    for each in result.hypotheses:
        ids, numbers = each.token_ids, each.token_log_probabilities
        num_linked = -1 if each.linked is None else len(each.linked)
        sizes = len(ids), len(numbers), num_linked
        parts.append(_HYPOTHESIS.pack(*sizes, each.ended, each.log_probability, each.score))
        parts += (array("i", ids).tobytes(), array("d", numbers).tobytes())
        if each.linked is not None:
            parts.append(np.ascontiguousarray(each.linked, np.int32).tobytes())
    body = b"".join(parts)
    return _CHECKSUM.pack(_checksum(key, body)) + body


def decode_result(
    key: bytes, value: bytes, request: GenerationRequest, vocab_size: int
) -> GenerationResult | None:
    """The result of a request; None for a value that is damaged, foreign or of another version."""
    try:
        checksum, version, reason, count = _HEAD.unpack_from(value)
        if version != _VERSION or checksum != _checksum(key, value[_CHECKSUM.size :]):
            return None
        reader = _ValueReader(value)
        hypotheses = [reader.hypothesis() for _ in range(count)]
    except (struct.error, ValueError):
        return None
    is_whole = reader.is_at_end and reason < len(_REASONS)
    if not is_whole or not _fits(request, hypotheses, vocab_size):
        return None
    best = hypotheses[0]
    # Lists of its own, as in a result of a model.
    return GenerationResult(
        list(best.token_ids), _REASONS[reason], best.log_probability, hypotheses
    )


class _ValueReader:
    """Reads hypotheses; raises struct.error or ValueError at the end of the bytes."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._at = _HEAD.size

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._value)

    def hypothesis(self) -> Hypothesis:
        num_ids, num_numbers, num_linked, *rest = _HYPOTHESIS.unpack_from(self._value, self._at)
        self._at += _HYPOTHESIS.size
        ended, log_probability, score = rest
        ids = self._filled(array("i"), num_ids).tolist()
        numbers = self._filled(array("d"), num_numbers).tolist()
        linked = None
        if num_linked != -1:
            linked = np.array(self._filled(array("i"), num_linked), np.int32)
        return Hypothesis(ids, numbers, log_probability, score, ended, linked)

    def _filled(self, items: array[N], count: int) -> array[N]:
        size = count * items.itemsize
        if count < 0 or self._at + size > len(self._value):
            raise ValueError("a value ends early")
        items.frombytes(self._value[self._at : self._at + size])
        self._at += size
        return items


def _fits(request: GenerationRequest, found: list[Hypothesis], vocab_size: int) -> bool:
    """Whether hypotheses fit a request, so that readers of them do not fail."""
    is_score = isinstance(request, ScoringRequest)
    if not 1 <= len(found) <= (1 if is_score else request.options.num_hypotheses):
        return False
    wants_links = isinstance(request, ScoringRequest) and request.alignment is not None
    for each in found:
        num_ids, num_numbers = len(each.token_ids), len(each.token_log_probabilities)
        if not num_ids <= num_numbers <= num_ids + 1:
            return False
        if num_ids and not (min(each.token_ids) >= 0 and max(each.token_ids) < vocab_size):
            return False
        if (each.linked is not None) != wants_links:
            return False
        if each.linked is not None and not _links(each, len(request.source_ids)):
            return False
    return True


def _links(hypothesis: Hypothesis, num_source: int) -> bool:
    """Whether each token is linked to a source token."""
    linked = hypothesis.linked
    assert linked is not None
    if len(linked) != len(hypothesis.token_ids):
        return False
    return not len(linked) or bool(linked.min() >= 0 and linked.max() < num_source)


def _checksum(key: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(key))

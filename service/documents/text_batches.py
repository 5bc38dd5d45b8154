"""Divides the segments of a document into batches; equal segments occur once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.common.portions import portions
from service.documents.document import DocumentSegment
from service.text.options import MimeType

# Segments and characters of one call: enough to fill a model's batch.
_BATCH_SEGMENTS = 128
_BATCH_CHARACTERS = 50_000


def batches(segments: Sequence[DocumentSegment]) -> Iterator[list[DocumentSegment]]:
    """Yield batches of different segments of one format, in the order of the document."""
    for mime_type in MimeType:
        alike = [one for one in dict.fromkeys(segments) if one.mime_type is mime_type]
        yield from portions(alike, _BATCH_CHARACTERS, size_of=_size, count=_BATCH_SEGMENTS)


def _size(segment: DocumentSegment) -> int:
    return len(segment.text)

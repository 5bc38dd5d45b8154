"""Divides the segments of a document into batches; equal segments occur once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.documents.document import DocumentSegment
from service.text.options import MimeType

# Segments and characters of one call: enough to fill a model's batch.
_BATCH_SEGMENTS = 128
_BATCH_CHARACTERS = 50_000


def batches(segments: Sequence[DocumentSegment]) -> Iterator[list[DocumentSegment]]:
    """Yield batches of different segments of one format, in the order of the document."""
    for mime_type in MimeType:
        batch: list[DocumentSegment] = []
        size = 0
        for segment in dict.fromkeys(segments):
            if segment.mime_type is not mime_type:
                continue
            if batch and (
                len(batch) == _BATCH_SEGMENTS or size + len(segment.text) > _BATCH_CHARACTERS
            ):
                yield batch
                batch, size = [], 0
            batch.append(segment)
            size += len(segment.text)
        if batch:
            yield batch

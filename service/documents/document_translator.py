"""Translates the segments of a document, in batches, each different one once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from service.documents.document import Segment

# Segments and characters of one call: enough to fill a model's batch.
_BATCH_SEGMENTS = 128
_BATCH_CHARACTERS = 50_000

T = TypeVar("T")
TranslateBatch = Callable[[Sequence[str], bool], Awaitable[Sequence[str]]]
"""Translates texts, which are HTML or plain text, in order."""


def batches(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Different segments in batches of one kind, in the order of the document."""
    for is_html in (False, True):
        batch: list[Segment] = []
        size = 0
        for segment in dict.fromkeys(segments):
            if segment.is_html is not is_html:
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


async def translate_segments(segments: Sequence[Segment], translate: TranslateBatch) -> list[str]:
    """The translation of each segment.

    Args:
        segments: of a document.
        translate: translates a batch; its errors are those of the document.
    """
    found: dict[Segment, str] = {}
    for batch in batches(segments):
        texts = [segment.text for segment in batch]
        translations = await translate(texts, batch[0].is_html)
        found.update(zip(batch, translations, strict=True))
    return [found[segment] for segment in segments]

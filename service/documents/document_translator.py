"""Translates the segments of a document, in batches, each different one once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

from service.documents.document import DocumentLimits, DocumentSegment
from service.documents.formats import read_document
from service.text.options import MimeType
from service.translation.fairness import FairExecutor

# Segments and characters of one call: enough to fill a model's batch.
_BATCH_SEGMENTS = 128
_BATCH_CHARACTERS = 50_000

TranslateBatch = Callable[[Sequence[str], MimeType], Awaitable[Sequence[str]]]
"""Translates texts of a format, in order."""


def batches(segments: Sequence[DocumentSegment]) -> Iterator[list[DocumentSegment]]:
    """Different segments in batches of one kind, in the order of the document."""
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


async def translate_segments(
    segments: Sequence[DocumentSegment], translate: TranslateBatch
) -> list[str]:
    """The translation of each segment.

    Args:
        segments: of a document.
        translate: translates a batch; its errors are those of the document.
    """
    found: dict[DocumentSegment, str] = {}
    for batch in batches(segments):
        texts = [segment.text for segment in batch]
        translations = await translate(texts, batch[0].mime_type)
        found.update(zip(batch, translations, strict=True))
    return [found[segment] for segment in segments]


class DocumentFiles:
    """Reads and writes documents in a thread, one at a time, fairly among clients.

    A document is read again to be written, so that no call holds more than its texts while they are
    translated, and only one parsed document is in memory.

    Args:
        limits: of each.
    """

    def __init__(self, limits: DocumentLimits) -> None:
        self._limits = limits
        self._thread = FairExecutor("documents")

    async def read(self, file_name: str, data: bytes, client: str) -> Sequence[DocumentSegment]:
        """The segments of a document.

        Raises:
            InvalidArgumentError: as from `read_document`.
        """
        return await self._thread.run(
            lambda: read_document(file_name, data, self._limits).segments, client
        )

    async def write(
        self, file_name: str, data: bytes, translations: Sequence[str], client: str
    ) -> bytes:
        """The document with these texts in place of its segments."""
        return await self._thread.run(
            lambda: read_document(file_name, data, self._limits).write(translations), client
        )

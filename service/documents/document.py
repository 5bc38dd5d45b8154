"""What a format makes of a file: segments to translate, and a way to write the file again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from service.errors import InvalidArgumentError
from service.text.options import MimeType

CONTENT_FIELD = "content"
"""The field that errors about a file name."""


@dataclass(frozen=True)
class DocumentSegment:
    """A part of a document that is translated by itself.

    Attributes:
        text: plain text, or a fragment of HTML or Markdown without blocks.
        mime_type: which of these: in fragments, tags have to move with the words.
    """

    text: str
    mime_type: MimeType = MimeType.PLAIN

    @property
    def is_html(self) -> bool:
        """Whether it is a fragment of HTML."""
        return self.mime_type is MimeType.HTML


@dataclass(frozen=True)
class DocumentLimits:
    """The largest document that is accepted; it bounds the memory of reading one.

    Attributes:
        max_bytes: of the file.
        max_unpacked_bytes: of all parts of a zip file.
        max_ratio: unpacked over packed bytes of a part with more than a megabyte.
        max_parts: files in a zip file.
        max_segments: of a document.
    """

    max_bytes: int = 64 * 2**20
    max_unpacked_bytes: int = 128 * 2**20
    max_ratio: int = 200
    max_parts: int = 5_000
    max_segments: int = 100_000

    def check_bytes(self, count: int) -> None:
        """Check the size of a file.

        Raises:
            InvalidArgumentError: the limit is exceeded; names it. So does the other method.
        """
        if count > self.max_bytes:
            raise bad_document(f"{count:,} bytes, the limit is {self.max_bytes:,}")

    def check_segments(self, count: int) -> None:
        """Check the number of segments."""
        if count > self.max_segments:
            raise bad_document(f"{count:,} parts to translate, the limit is {self.max_segments:,}")


class Document(Protocol):
    """A file that was read."""

    @property
    def segments(self) -> Sequence[DocumentSegment]:
        """What is to be translated, in the order of the file."""
        ...

    def write(self, translations: Sequence[str]) -> bytes:
        """The file with these texts in place of the segments; to be called once.

        Where a text equals its segment, the file stays as it is.
        """
        ...


def bad_document(why: str) -> InvalidArgumentError:
    """The error about a file that can't be read."""
    return InvalidArgumentError(CONTENT_FIELD, why)

"""What a format makes of a file: segments to translate, and a way to write the file again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from service.errors import InvalidArgumentError
from service.text.options import MimeType

CONTENT_FIELD = "content"
"""The field that errors about a file name."""


@dataclass(frozen=True, slots=True)
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
    """The largest document that is accepted. Each limit is of a whole file, not of its parts.

    With readers that take linear time, they bound the time and the memory of reading and writing.
    They leave room above real documents: a Word file of 500 pages has 100,000 elements.

    Attributes:
        max_bytes: size of the file.
        max_unpacked_bytes: size of all parts of a zip file, or of text copied into a new one.
        max_ratio: unpacked over packed bytes, of a zip file and a part with more than a megabyte.
        max_parts: files in a zip file.
        max_segments: parts to translate.
        max_lines: lines of a text file.
        max_tags: tags and comments of XML; elements that are copied when it is written.
        max_attributes: attributes of XML, and those that are copied.
        max_element_attributes: attributes of one element.
        max_format_nodes: elements and attributes in the format of one run of Word.
        max_nodes_with_two_prefixes: tags and attributes, if an element has two prefixes for a
            namespace around it.
        max_level_sum: levels of all elements of XML together. Moving an element takes time for
            all that are in it, so an element of level 20 may be visited 20 times.
        max_namespaces: namespaces declared around an element. Each is compared when one is made.
        max_namespace_characters: characters of these declarations.
    """

    max_bytes: int = 64 * 2**20
    max_unpacked_bytes: int = 128 * 2**20
    max_ratio: int = 200
    max_parts: int = 5_000
    max_segments: int = 100_000
    max_lines: int = 1_000_000
    max_tags: int = 2_000_000
    max_attributes: int = 2_000_000
    max_element_attributes: int = 256
    max_format_nodes: int = 1_000
    max_nodes_with_two_prefixes: int = 100_000
    max_level_sum: int = 40_000_000
    max_namespaces: int = 128
    max_namespace_characters: int = 16_000

    def check(self, kind: str, count: int, where: str = "") -> None:
        """Check a number that a file has.

        Args:
            kind: the name of the limit without "max_".
            count: the number.
            where: the beginning of the message, such as the name of a part.

        Raises:
            InvalidArgumentError: the limit is exceeded; the message has its name and value.
        """
        limit: int = getattr(self, f"max_{kind}")
        if count > limit:
            raise bad_document(f"{where}{count:,} {_WORDS[kind]}, the limit is {limit:,}")

    def check_bytes(self, count: int) -> None:
        """Check the size of a file; errors as of `check`."""
        self.check("bytes", count)

    def check_segments(self, count: int) -> None:
        """Check the number of segments; errors as of `check`."""
        if count > self.max_segments:
            self.check("segments", count)


_WORDS = {
    "bytes": "bytes",
    "unpacked_bytes": "bytes unpacked",
    "ratio": "times its size",
    "parts": "parts",
    "segments": "parts to translate",
    "lines": "lines",
    "tags": "tags",
    "attributes": "attributes",
    "element_attributes": "attributes of one element",
    "format_nodes": "elements and attributes in the format of one run",
    "nodes_with_two_prefixes": "tags and attributes, with two prefixes for a namespace",
    "level_sum": "levels of all elements together",
    "namespaces": "namespaces around an element",
    "namespace_characters": "characters of namespaces around an element",
}


class DocumentCounts:
    """Sums of what the parts of a file have, or of what is copied when it is written.

    Args:
        limits: bounds of the sums.
        where: the beginning of the messages of errors.
    """

    def __init__(self, limits: DocumentLimits, where: str = "") -> None:
        self.limits = limits
        self._where = where
        self._counts: Counter[str] = Counter()

    def __getitem__(self, kind: str) -> int:
        return self._counts[kind]

    def add(self, kind: str, count: int) -> None:
        """Add to a sum; errors as of `DocumentLimits.check`."""
        self._counts[kind] += count
        self.limits.check(kind, self._counts[kind], self._where)


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

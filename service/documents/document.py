"""The interface of a document: segments to translate, and a method that writes the file again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from service.errors import InvalidArgumentError
from service.text.options import MimeType

CONTENT_FIELD = "content"
"""Name of the field in errors about a file."""


@dataclass(frozen=True, slots=True)
class DocumentSegment:
    """A part of a document that is translated by itself.

    Attributes:
        text: plain text, or a fragment of HTML or Markdown without blocks. Not empty.
        mime_type: format of the text; tags of a fragment move with the words.
    """

    text: str
    mime_type: MimeType = MimeType.PLAIN

    @property
    def is_html(self) -> bool:
        """Whether it is a fragment of HTML."""
        return self.mime_type is MimeType.HTML


@dataclass(frozen=True)
class DocumentLimits:
    """The largest accepted document. Each limit applies to a whole file, not to its parts.

    Since readers take linear time, the limits bound the time and the memory of reading and writing.
    They leave room above real documents: a Word file of 500 pages has 100,000 elements.

    Attributes:
        max_bytes: bytes of the file.
        max_unpacked_bytes: bytes of all parts of a zip file, or of text copied into a new one.
        max_ratio: ratio of unpacked to packed bytes, for a zip file and a part of over 1 MiB.
        max_parts: files in a zip file.
        max_segments: parts to translate.
        max_lines: lines of a text file.
        max_tags: tags and comments of XML, or elements copied when it is written.
        max_attributes: attributes of XML, or copied attributes.
        max_element_attributes: attributes of one element.
        max_format_nodes: elements and attributes in the format of one run of Word.
        max_nodes_with_two_prefixes: tags and attributes, if one namespace has two prefixes.
        max_level_sum: sum of the levels of all XML elements. Moving an element takes time for all
            elements in it, so an element of level 20 may be visited 20 times.
        max_namespaces: namespaces declared around an element. A new element is compared with each.
        max_namespace_characters: characters of the namespaces declared around an element.
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
        """Check a count against its limit.

        Args:
            kind: name of the limit without "max_".
            where: beginning of the message, such as the name of a part.

        Raises:
            InvalidArgumentError: the limit is exceeded; the message has its name and value.
        """
        limit: int = getattr(self, f"max_{kind}")
        if count > limit:
            raise bad_document(f"{where}{count:,} {_WORDS[kind]}, the limit is {limit:,}")

    def check_bytes(self, count: int) -> None:
        """Check the size of a file. Raises the error of `check`."""
        self.check("bytes", count)

    def check_segments(self, count: int) -> None:
        """Check the number of segments. Raises the error of `check`."""
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
    """Sums of counts over the parts of a file, or over the copies made when it is written.

    Args:
        where: beginning of error messages.
    """

    def __init__(self, limits: DocumentLimits, where: str = "") -> None:
        self.limits = limits
        self._where = where
        self._counts: Counter[str] = Counter()

    def __getitem__(self, kind: str) -> int:
        return self._counts[kind]

    def add(self, kind: str, count: int) -> None:
        """Add to a sum, and check it. Raises the error of `DocumentLimits.check`."""
        self._counts[kind] += count
        self.limits.check(kind, self._counts[kind], self._where)


class Document(Protocol):
    """A document that was read from a file."""

    @property
    def segments(self) -> Sequence[DocumentSegment]:
        """The segments to translate, in the order of the file."""
        ...

    def write(self, translations: Sequence[str]) -> bytes:
        """Write the file with these texts in place of the segments. May be called only once.

        If a text equals its segment, that part of the file does not change.
        """
        ...


@runtime_checkable
class NamesLanguage(Protocol):
    """A document that says which language it is in."""

    def set_language(self, language: str) -> None:
        """Set the BCP-47 code of the translations, for `write`.

        Raises:
            InvalidArgumentError: the document says that it is to be translated into another one.
        """
        ...


def set_language(document: Document, language: str) -> None:
    """Set the language of the translations, before `write`; "" if it is unknown.

    Raises:
        InvalidArgumentError: the document says that it is to be translated into another one.
    """
    if language and isinstance(document, NamesLanguage):
        document.set_language(language)


def bad_document(why: str) -> InvalidArgumentError:
    """The error for a file that can't be read."""
    return InvalidArgumentError(CONTENT_FIELD, why)

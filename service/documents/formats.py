"""Formats of documents, by the extensions of their files."""

from __future__ import annotations

import codecs
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from service.documents.document import Document, DocumentLimits
from service.errors import InvalidArgumentError


@dataclass(frozen=True)
class Reader:
    """Reads files with a class that is imported when it is first used.

    The server knows all formats and reads no file in its own process, which has none of these
    classes and no XML library.

    Attributes:
        module: the class's module in this package.
        name: the class's name.
    """

    module: str
    name: str

    def load(self) -> Callable[..., Document]:
        """Import the class."""
        module = importlib.import_module(f"service.documents.{self.module}")
        found: Callable[..., Document] = getattr(module, self.name)
        return found

    def read(self, data: bytes, limits: DocumentLimits) -> Document:
        """Read a file.

        Raises:
            InvalidArgumentError: the file has another format, or exceeds a limit.
        """
        return self.load()(data, limits)


READERS: dict[str, Reader] = {
    ".txt": Reader("plain_text", "PlainText"),
    ".html": Reader("web_page", "WebPage"),
    ".htm": Reader("web_page", "WebPage"),
    ".md": Reader("markdown_file", "MarkdownFile"),
    ".markdown": Reader("markdown_file", "MarkdownFile"),
    ".srt": Reader("subtitles", "Subtitles"),
    ".po": Reader("gettext_catalog", "GettextCatalog"),
    ".pot": Reader("gettext_catalog", "GettextCatalog"),
    ".xlf": Reader("xliff", "Xliff"),
    ".xliff": Reader("xliff", "Xliff"),
    ".docx": Reader("word", "WordDocument"),
    ".odt": Reader("open_document", "OpenDocumentText"),
}
"""By extension."""


def extension_of(file_name: str) -> str:
    """The extension that tells the format of a file.

    Raises:
        InvalidArgumentError: no format has it; lists those that there are.
    """
    extension = PurePath(file_name).suffix.lower()
    if extension not in READERS:
        known = ", ".join(READERS)
        raise InvalidArgumentError("file_name", f"ends in none of {known}")
    return extension


def load_readers() -> None:
    """Import the classes of all formats, and what they would import with the first file."""
    for reader in READERS.values():
        reader.load()
    codecs.lookup("cp437")  # of names in zip files


def read_document(file_name: str, data: bytes, limits: DocumentLimits) -> Document:
    """Read a document. Not for the event loop: a large one takes seconds.

    Args:
        file_name: whose extension tells the format.
        data: the file.
        limits: of its size.

    Raises:
        InvalidArgumentError: unknown format, a file of another format, or one beyond the limits.
    """
    reader = READERS[extension_of(file_name)]
    limits.check_bytes(len(data))
    document = reader.read(data, limits)
    limits.check_segments(len(document.segments))
    return document

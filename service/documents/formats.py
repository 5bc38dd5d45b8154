"""Formats of documents, by file extension."""

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
    """Reads files with a class that is imported at first use.

    The server's own process knows all formats but reads no file, so it imports neither these
    classes nor an XML library.

    Attributes:
        module: name of the class's module in this package.
        name: name of the class.
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
    ".sdlxliff": Reader("xliff", "Xliff"),
    ".mqxliff": Reader("xliff", "Xliff"),
    ".mxliff": Reader("xliff", "Xliff"),
    ".txlf": Reader("xliff", "Xliff"),
    ".docx": Reader("word", "WordDocument"),
    ".odt": Reader("open_document", "OpenDocumentText"),
}
"""Readers of all formats, by file extension."""


def extension_of(file_name: str) -> str:
    """The extension of a file name, which determines the format.

    Raises:
        InvalidArgumentError: no format has this extension; lists the supported ones.
    """
    extension = PurePath(file_name).suffix.lower()
    if extension not in READERS:
        known = ", ".join(READERS)
        raise InvalidArgumentError("file_name", f"has an unsupported type: expected {known}")
    return extension


def load_readers() -> None:
    """Import the classes of all formats, and modules that they import with the first file."""
    for reader in READERS.values():
        reader.load()
    codecs.lookup("cp437")  # encoding of names in zip files


def read_document(file_name: str, data: bytes, limits: DocumentLimits) -> Document:
    """Read a document. Not for the event loop: a large one takes seconds.

    Args:
        file_name: name of the file; the extension determines the format.

    Raises:
        InvalidArgumentError: the format is unknown, or the file has another format or exceeds a
            limit.
    """
    reader = READERS[extension_of(file_name)]
    limits.check_bytes(len(data))
    document = reader.read(data, limits)
    limits.check_segments(len(document.segments))
    return document

"""Formats of documents, by the extensions of their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

from service.documents.document import Document, DocumentLimits
from service.documents.gettext_catalog import GettextCatalog
from service.documents.markdown_file import MarkdownFile
from service.documents.open_document import OpenDocumentText
from service.documents.plain_text import PlainText
from service.documents.subtitles import Subtitles
from service.documents.web_page import WebPage
from service.documents.word import WordDocument
from service.documents.xliff import Xliff
from service.errors import InvalidArgumentError

Reader = Callable[[bytes, DocumentLimits], Document]

READERS: dict[str, Reader] = {
    ".txt": lambda data, limits: PlainText(data),
    ".html": lambda data, limits: WebPage(data),
    ".htm": lambda data, limits: WebPage(data),
    ".md": lambda data, limits: MarkdownFile(data),
    ".markdown": lambda data, limits: MarkdownFile(data),
    ".srt": lambda data, limits: Subtitles(data),
    ".po": lambda data, limits: GettextCatalog(data),
    ".pot": lambda data, limits: GettextCatalog(data),
    ".xlf": lambda data, limits: Xliff(data),
    ".xliff": lambda data, limits: Xliff(data),
    ".docx": WordDocument,
    ".odt": OpenDocumentText,
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
    document = reader(data, limits)
    limits.check_segments(len(document.segments))
    return document

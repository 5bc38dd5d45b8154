"""HTML: text is divided into segments at elements that end a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from service.documents.document import DocumentLimits, DocumentSegment, bad_document
from service.documents.encodings import DecodedText, decode
from service.text.markup.document import MarkupError, TextRun
from service.text.markup.html_parser import parse_markup
from service.text.options import MimeType


class WebPage:
    """An HTML file.

    Raises:
        InvalidArgumentError: the file is not UTF-8, or has too many tags.
    """

    def __init__(self, data: bytes, limits: DocumentLimits) -> None:
        self._decoded: DecodedText = decode(data, limits)
        try:
            self._parts = parse_markup(self._decoded.text, is_xml=False)
        except MarkupError as exc:
            raise bad_document(str(exc)) from exc
        self.segments: Sequence[DocumentSegment] = [
            DocumentSegment(part.raw, MimeType.HTML)
            for part in self._parts
            if isinstance(part, TextRun)
        ]

    def write(self, translations: Sequence[str]) -> bytes:
        """Write the file with these texts in place of the segments."""
        remaining = iter(translations)
        return self._decoded.encode(
            "".join(
                next(remaining) if isinstance(part, TextRun) else part.raw for part in self._parts
            )
        )

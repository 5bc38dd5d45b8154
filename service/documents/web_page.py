"""HTML: text is divided into segments at elements that end a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.documents.document import DocumentLimits, DocumentSegment, bad_document
from service.documents.encodings import DecodedText, decode
from service.text.markup.document import MarkupError, TextRun
from service.text.markup.html_parser import parse_markup
from service.text.options import MimeType

# The encoding that a page of ASCII declares, in which browsers would read a translation's umlauts.
_CHARSET = re.compile(
    r"""(<meta\s[^<>]{0,200}?\bcharset\s*=\s*["']?)(?!utf-?8\b)[\w.:-]+""", re.IGNORECASE
)

_ROOT = re.compile(r"<html\s[^<>]{0,1000}>", re.IGNORECASE)
_LANGUAGE = re.compile(r"""(\s(?:xml:)?lang\s*=\s*["']?)[\w-]+""", re.IGNORECASE)


class WebPage:
    """An HTML file.

    Raises:
        InvalidArgumentError: the file is not UTF-8, or has too many tags.
    """

    def __init__(self, data: bytes, limits: DocumentLimits) -> None:
        self._decoded: DecodedText = decode(data, limits)
        self._language = ""
        try:
            self._parts = parse_markup(self._decoded.text, is_xml=False)
        except MarkupError as exc:
            raise bad_document(str(exc)) from exc
        self.segments: Sequence[DocumentSegment] = [
            DocumentSegment(part.raw, MimeType.HTML)
            for part in self._parts
            if isinstance(part, TextRun)
        ]

    def set_language(self, language: str) -> None:
        """Set the language of the page, if it names one, for `write`."""
        self._language = language

    def write(self, translations: Sequence[str]) -> bytes:
        """Write the file with these texts in place of the segments."""
        remaining = iter(translations)
        text = "".join(
            next(remaining) if isinstance(part, TextRun) else part.raw for part in self._parts
        )
        if self._language and text != self._decoded.text:
            text = _ROOT.sub(self._named, text, count=1)
        if not self._decoded.mark and self._decoded.text.isascii() and not text.isascii():
            text = _CHARSET.sub(r"\1utf-8", text, count=1)
        return self._decoded.encode(text)

    def _named(self, root: re.Match[str]) -> str:
        return _LANGUAGE.sub(lambda found: found[1] + self._language, root[0])

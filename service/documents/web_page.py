"""HTML: text is divided into segments at elements that end a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.documents.document import DocumentLimits, DocumentSegment, bad_document
from service.documents.encodings import UTF_8_NAMES, DecodedText, decode
from service.text.markup.document import MarkupError, TextRun
from service.text.markup.html_parser import parse_markup
from service.text.options import MimeType

# The encoding that a page of ASCII declares, in which browsers would read a translation's umlauts.
_CHARSETS = (
    re.compile(
        r"""(<meta(?:\s+[\w-]+\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'>]+))*?\s+charset\s*=\s*["']?)[\w.:-]+""",
        re.IGNORECASE,
    ),
    re.compile(
        r"""(<meta\b(?=[^>]*\bhttp-equiv\s*=\s*["']?content-type)[^>]*\bcharset\s*=\s*)[\w.:-]+""",
        re.IGNORECASE,
    ),
    re.compile(r"""(\s*<\?xml\b[^>]*\bencoding\s*=\s*["'])[\w.:-]+"""),
)
_ROOT = re.compile(r"<html\s", re.IGNORECASE)
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
        texts = [next(remaining) if isinstance(part, TextRun) else part.raw for part in self._parts]
        decoded = self._decoded
        if (text := "".join(texts)) == decoded.text:
            return decoded.encode(text)
        is_declared = not decoded.mark and decoded.text.isascii() and not text.isascii()
        for index, part in enumerate(self._parts):
            if isinstance(part, TextRun):
                continue
            if self._language and _ROOT.match(part.raw):
                texts[index] = _LANGUAGE.sub(lambda found: found[1] + self._language, part.raw)
            elif is_declared:
                texts[index] = _declaring_utf_8(part.raw)
        return decoded.encode("".join(texts))


def _declaring_utf_8(tag: str) -> str:
    """A tag with UTF-8 as the encoding that it declares, if it declares one."""
    for charset in _CHARSETS:
        found = charset.match(tag)
        if found and tag[found.end(1) : found.end()].lower() not in UTF_8_NAMES:
            return f"{found[1]}utf-8{tag[found.end() :]}"
    return tag

"""Markdown: each paragraph, heading, item or cell of a table is a segment."""

from __future__ import annotations

from collections.abc import Sequence

from service.documents.document import DocumentLimits, DocumentSegment, bad_document
from service.documents.encodings import DecodedText, decode
from service.text.markup.document import MarkupError, TextRun, Verbatim
from service.text.markup.markdown_parser import parse_markdown
from service.text.options import MimeType


class MarkdownFile:
    """A Markdown file.

    Raises:
        InvalidArgumentError: the file is not UTF-8, or has too much markup.
    """

    def __init__(self, data: bytes, limits: DocumentLimits) -> None:
        self._decoded: DecodedText = decode(data, limits)
        try:
            self._parts = parse_markdown(self._decoded.text)
        except MarkupError as exc:
            raise bad_document(str(exc)) from exc
        self.segments: Sequence[DocumentSegment] = [
            DocumentSegment(part.raw.strip() + _definitions(part), MimeType.MARKDOWN)
            for part in self._parts
            if isinstance(part, TextRun)
        ]

    def write(self, translations: Sequence[str]) -> bytes:
        """Write the file with these texts in place of the segments."""
        remaining = iter(translations)
        return self._decoded.encode(
            "".join(
                _written(part, next(remaining)) if isinstance(part, TextRun) else part.raw
                for part in self._parts
            )
        )


def _definitions(run: TextRun) -> str:
    """Empty definitions of the reference links in a run, without which they are not links."""
    found = []
    for item in run.items:
        if isinstance(item, Verbatim) and item.raw.lstrip("!").startswith("["):
            label = item.raw.partition("[")[2].removesuffix("[]").removesuffix("]")
            found.append(f"\n\n[{' '.join(label.split())}]: <>")
    return "".join(dict.fromkeys(found))


def _written(run: TextRun, translation: str) -> str:
    raw = run.raw
    space = raw[: len(raw) - len(raw.lstrip())], raw[len(raw.rstrip()) :]
    return translation.removesuffix(_definitions(run)).strip().join(space)

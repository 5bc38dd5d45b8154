"""Plain text: a segment for each paragraph, with the blank lines between them kept."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.documents.document import DocumentLimits, DocumentSegment
from service.documents.encodings import DecodedText, decode

# Paragraphs are cut at the first end of a line after this many characters.
_LONG = 10_000
_BLANK = re.compile(r"\s*\Z")


class PlainText:
    """A text file.

    Raises:
        InvalidArgumentError: the file is not text, or exceeds a limit.
    """

    def __init__(self, data: bytes, limits: DocumentLimits) -> None:
        self._decoded: DecodedText = decode(data, limits)
        self._limits = limits
        self._parts: list[tuple[bool, str]] = []  # whether it is a segment
        self._num_segments = 0
        lines: list[str] = []
        size = 0
        for line in self._decoded.text.splitlines(keepends=True):
            if _BLANK.match(line):
                self._end(lines)
                lines, size = [], 0
                self._parts.append((False, line))
                continue
            lines.append(line)
            size += len(line)
            if size > _LONG:
                self._end(lines)
                lines, size = [], 0
        self._end(lines)
        self.segments: Sequence[DocumentSegment] = [
            DocumentSegment(text) for is_segment, text in self._parts if is_segment
        ]

    def _end(self, lines: Sequence[str]) -> None:
        paragraph = "".join(lines)
        text = paragraph.rstrip()
        if text:
            self._parts += [(True, text), (False, paragraph[len(text) :])]
            self._num_segments += 1
            self._limits.check_segments(self._num_segments)

    def write(self, translations: Sequence[str]) -> bytes:
        """Write the file with these texts in place of the segments."""
        remaining = iter(translations)
        return self._decoded.encode(
            "".join(next(remaining) if is_segment else text for is_segment, text in self._parts)
        )

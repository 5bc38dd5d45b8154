"""SubRip subtitles (.srt): numbers, times and the number of lines of each subtitle are kept."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.documents.document import DocumentLimits, DocumentSegment, bad_document
from service.documents.encodings import DecodedText, decode
from service.text.options import MimeType

_TIME = r"\d{1,3}:\d{1,2}:\d{1,2}[,.]\d{1,3}"
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}.*")
_NUMBER = re.compile(r"\s*\d{1,9}\s*")
# Positions, such as {\an8}, at the beginning of a subtitle.
_POSITION = re.compile(r"(?:\{\\[^{}]{0,100}\})*")
_BREAK = r"\N"
"""A line break within a line, in files that were converted from another format."""
_BREAKS = re.compile(r"(?<![A-Za-z]:)\\N")  # C:\Notes has none
_TAG = re.compile(r"</?(?:i|b|u|s|font)\b[^<>]{0,200}>", re.IGNORECASE)
_OPENING = r"(?:\s|\{\\[^{}]{0,100}\}|<(?:i|b|u|s|font)\b[^<>]{0,200}>)*+"
# A line of another speaker: after a dash or two angle brackets.
_DIALOGUE = re.compile(rf"{_OPENING}(?:[-–—‐−]|>>)\s*+[^\s>-]", re.IGNORECASE)
# A line that begins with the name of its speaker: "TOM: Hello", "[Tom] Hello", "Tom Miller: Hello",
# "MAN 1: Hello", "TOM (on phone): Hello".
_NAMED = re.compile(
    rf"{_OPENING}(?:[^\W\d_a-z][\w.'’-]{{0,30}}(?: [^\W_a-z][\w.'’-]{{0,30}}){{0,2}}+"
    r"(?: ?\([^()]{1,40}\))?+:|"
    r"\[[^\[\]]{1,40}\]|\([^()]{1,40}\))\s*+\S"
)
# A line of its own: a sound, or a song.
_ALONE = re.compile(
    rf"{_OPENING}(?:\[[^\[\]]{{1,80}}\]|\([^()]{{1,80}}\)|[♪♫#][^♪♫#]{{1,200}}[♪♫#])"
    r"(?:\s|</?\w{1,4}>)*+\Z"
)


@dataclass(frozen=True)
class _Part:
    """Lines of the file that are copied, or the lines of one segment.

    Attributes:
        lines: lines with their line breaks.
        before: text that is copied before the segment.
        segment: segment to translate; None if the lines are copied.
    """

    lines: Sequence[str]
    before: str = ""
    segment: DocumentSegment | None = None


class Subtitles:
    """A file of subtitles. A line of another speaker begins a segment: after a dash, or a name.

    Raises:
        InvalidArgumentError: the file has no subtitles, or exceeds a limit.
    """

    def __init__(self, data: bytes, limits: DocumentLimits) -> None:
        self._decoded: DecodedText = decode(data, limits)
        lines = self._decoded.text.splitlines(keepends=True)
        times = [index for index, line in enumerate(lines) if _TIMES.fullmatch(line.rstrip())]
        if not times and self._decoded.text.strip():
            raise bad_document("has no line of times, such as 00:00:01,000 --> 00:00:02,000")
        self._parts: list[_Part] = []
        end = num_segments = 0
        for index, after in itertools.pairwise([*times, len(lines)]):
            self._parts.append(_Part(lines[end : index + 1]))
            has_number = after < len(lines) and _NUMBER.fullmatch(lines[after - 1])
            end = max(index + 1, after - 1 if has_number else after)
            while end > index + 1 and not lines[end - 1].strip():
                end -= 1
            parts = [*_text_parts(lines[index + 1 : end])]
            num_segments += sum(part.segment is not None for part in parts)
            limits.check_segments(num_segments)
            self._parts += parts
        self._parts.append(_Part(lines[end:]))
        self.segments: Sequence[DocumentSegment] = [
            part.segment for part in self._parts if part.segment is not None
        ]

    def write(self, translations: Sequence[str]) -> bytes:
        """Write the file with these texts in place of the segments."""
        remaining = iter(translations)
        written: list[str] = []
        for part in self._parts:
            if part.segment is None or (text := next(remaining)) == part.segment.text:
                written += part.lines
                continue
            ends = [line[len(line.rstrip("\r\n")) :] for line in part.lines]
            counts = [len(_BREAKS.findall(line)) + 1 for line in part.lines]
            wrapped = iter(_wrapped(_shown(text, part.segment), sum(counts)))
            lines = [_BREAK.join(itertools.islice(wrapped, count)) for count in counts]
            lines[0] = part.before + lines[0]
            written += [line + end for line, end in zip(lines, ends, strict=True) if line]
        return self._decoded.encode("".join(written))


def _text_parts(lines: Sequence[str]) -> Iterator[_Part]:
    """The segments of one subtitle."""
    begins = [_DIALOGUE.match(line) is not None for line in lines]
    if not any(begins) and all(map(_NAMED.match, lines)):
        begins = [True] * len(lines)
    alone = [_ALONE.match(line) is not None for line in lines]
    begins = [any(each) for each in zip(begins, alone, [False, *alone], strict=False)]
    speech: list[str] = []
    for line, is_other in zip(lines, begins, strict=True):
        if is_other and speech:
            yield _text_part(speech)
            speech = []
        speech.append(line)
    if speech:
        yield _text_part(speech)


def _text_part(lines: Sequence[str]) -> _Part:
    pieces = [piece.strip() for line in lines for piece in _BREAKS.split(line)]
    text = " ".join(filter(None, pieces))
    position = _POSITION.match(text)
    before = position[0] if position else ""
    text = text[len(before) :].strip()
    if not any(map(str.isalpha, _TAG.sub("", text))):
        return _Part(lines)
    if not _TAG.search(text):
        return _Part(lines, before, DocumentSegment(text))
    fragments, end = [], 0
    for tag in _TAG.finditer(text):
        fragments += [html.escape(text[end : tag.start()], quote=False), tag[0]]
        end = tag.end()
    fragments.append(html.escape(text[end:], quote=False))
    return _Part(lines, before, DocumentSegment("".join(fragments), MimeType.HTML))


def _shown(text: str, segment: DocumentSegment) -> str:
    """Format a translation for the file, on one line."""
    return " ".join((html.unescape(text) if segment.is_html else text).split())


def _wrapped(text: str, count: int) -> list[str]:
    """Wrap text into at most `count` lines of about the same length, not within a tag."""
    lines: list[list[str]] = [[]]  # of words
    length = 0
    left = _visible(text)
    for word in re.findall(r"(?:<[^<>]*>|[^\s<]|<)+", text):
        size = _visible(word)
        target = (length + left) / (count - len(lines) + 1)
        if lines[-1] and len(lines) < count and length + (size + 1) / 2 > target:
            lines.append([word])
            length = size
        else:
            lines[-1].append(word)
            length += size + 1
        left -= size + 1
    return [" ".join(words) for words in lines]


def _visible(text: str) -> int:
    """The number of visible characters."""
    return len(_TAG.sub("", text))

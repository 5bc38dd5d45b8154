"""Joins the lines of wrapped plain text, so that sentences are translated whole."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Unpack

from service.common.fairness import in_turn
from service.common.portions import portions
from service.text.options import LineBreaks
from service.things.interface import LinkedTranslator, Stage
from service.translation.engine_call import CallArguments
from service.translation.line_markers import opening_length
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.preparation import FEW_TEXTS
from service.translation.results import TextResult
from service.translation.translator import StreamDelta

# Texts with this many characters are joined within some milliseconds, on the event loop.
_SMALL_CHARACTERS = 1000
# Characters of a line of wrapped text: addresses and poems have shorter lines.
_MIN_WIDTH, _MAX_WIDTH = 50, 100
# A paragraph is wrapped if at most this share of its line breaks does not come from wrapping.
_MAX_OTHER_BREAKS = 0.25
_LINE = re.compile(
    r"([^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*+)(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]|\Z)"
)
_FIRST_WORD = re.compile(r"\S*+")
_SENTENCE_ENDS = tuple('.!?:;,…)"”')
_FIRST_UNSPACED = "\u2e80"  # from here on, characters of scripts without spaces between words


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a text.

    Attributes:
        raw: the line without its break.
        line_break: the break after it.
        marker: marker at the beginning of the line, without white space.
        body: the line without its marker, and without white space around it.
    """

    raw: str
    line_break: str
    marker: str
    body: str

    @property
    def num_quotes(self) -> int:
        """The depth of quotation of the line."""
        return len(self.marker) - len(self.marker.lstrip(">"))

    def continues(self, before: _Line) -> bool:
        """Whether it may be one paragraph with the line before it."""
        if not self.body or not before.body or before.marker.lstrip(">").startswith("#"):
            return False
        # In a mail, lines of one quote begin with the same marks.
        return not self.marker.strip(">") and len(self.marker) == before.num_quotes


def joined_lines(text: str, mode: LineBreaks, language: str) -> str:
    """A text whose paragraphs are one line each.

    Args:
        text: plain text.
        mode: line breaks that become spaces: all within a paragraph, or those of wrapped ones.
        language: BCP-47 code of the text.
    """
    if mode is LineBreaks.KEEP or len(lines := list(_lines(text, language))) < 2:
        return text
    paragraphs = list(_paragraphs(lines))
    width = _width(paragraphs) if mode is LineBreaks.AUTO else 0
    written: list[str] = []
    for paragraph in paragraphs:
        joins = [True] * (len(paragraph) - 1)
        if mode is LineBreaks.AUTO:
            joins = _wraps(paragraph, width)
        written.append(paragraph[0].raw)
        for index, line in enumerate(paragraph[1:]):
            if joins[index]:
                written[-1] = written[-1].rstrip()
                written += (_space(written[-1], line.body), line.raw[line.raw.index(line.body) :])
            else:
                written += (paragraph[index].line_break, line.raw)
        written.append(paragraph[-1].line_break)
    return "".join(written)


def _lines(text: str, language: str) -> Iterator[_Line]:
    for match in _LINE.finditer(text):
        raw, line_break = match.groups()
        if not raw and not line_break:
            return
        start = opening_length(raw, language)
        yield _Line(raw, line_break, "".join(raw[:start].split()), raw[start:].strip())


def _paragraphs(lines: Sequence[_Line]) -> Iterator[list[_Line]]:
    paragraph = [lines[0]]
    for line in lines[1:]:
        if line.continues(paragraph[-1]):
            paragraph.append(line)
        else:
            yield paragraph
            paragraph = [line]
    yield paragraph


def _width(paragraphs: Sequence[Sequence[_Line]]) -> int:
    """The width that a text is wrapped at; 0 if none of its lines is long enough."""
    lengths = (len(line.raw.rstrip()) for paragraph in paragraphs for line in paragraph[:-1])
    width = max((length for length in lengths if length <= _MAX_WIDTH), default=0)
    return width if width >= _MIN_WIDTH else 0


def _wraps(paragraph: Sequence[_Line], width: int) -> list[bool]:
    """Whether each line break of a paragraph comes from wrapping."""
    pairs = list(itertools.pairwise(paragraph))
    wraps = [
        width > 0 and len(line.raw.rstrip()) + 1 + _first_word(after.body) > width
        for line, after in pairs
    ]
    num_other = sum(
        not is_wrap and not line.body.endswith(_SENTENCE_ENDS)
        for is_wrap, (line, _) in zip(wraps, pairs, strict=True)
    )
    # A single break says little: two lines of an address may be as long.
    goes_on = any(after.body[0].islower() for _, after in pairs)
    if num_other > _MAX_OTHER_BREAKS * len(pairs) or (sum(wraps) < 2 and not goes_on):
        return [False] * len(pairs)
    return wraps


def _first_word(body: str) -> int:
    found = _FIRST_WORD.match(body)
    assert found is not None, "the pattern matches nothing as well"
    return found.end()


def _space(before: str, after: str) -> str:
    """The space that replaces a line break; none in scripts without spaces."""
    is_unspaced = before[-1:] >= _FIRST_UNSPACED and after[:1] >= _FIRST_UNSPACED
    return "" if is_unspaced else " "


class LineJoiner(Stage):
    """The stage that joins the lines of plain texts.

    Args:
        below: translates the joined texts.
        mode: line breaks that become spaces.
        limits: the largest request.
        language: BCP-47 code of the texts.
    """

    def __init__(
        self, below: LinkedTranslator, mode: LineBreaks, limits: TranslatorLimits, language: str
    ) -> None:
        super().__init__(below)
        self._mode = mode
        self._limits = limits
        self._language = language

    async def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> list[TextResult]:
        """Translate texts; see `LinkedTranslator.translate`. Links are of the joined texts."""
        names = [f"contents[{index}]" for index in range(len(texts))]
        self._limits.check_lengths("contents", names, [len(text) for text in texts])
        return await self._below.translate(await self._joined(texts), options, **shared)

    async def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> AsyncGenerator[StreamDelta | TextResult, None]:
        """Translate one text as a stream; see `LinkedTranslator.stream`."""
        self._limits.check_length("content", len(text))
        [joined] = await self._joined([text])
        async with aclosing(self._below.stream(joined, options, **shared)) as events:
            async for event in events:
                yield event

    async def _joined(self, texts: Sequence[str]) -> list[str]:
        joined: list[str] = []
        for some in portions(texts, _SMALL_CHARACTERS, count=FEW_TEXTS):
            join = functools.partial(self._join, some)
            is_small = sum(map(len, some)) <= _SMALL_CHARACTERS
            joined += await in_turn(join, is_short=is_small)
        return joined

    def _join(self, texts: Sequence[str]) -> list[str]:
        return [joined_lines(text, self._mode, self._language) for text in texts]

"""Links of reStructuredText in plain text, as in documentation and its catalogues.

A text that has one is translated like a document with markup: the link stays around its words, and
its address is copied. References without an address of their own are copied whole.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Unpack

from service.common.fairness import in_turn
from service.errors import InvalidArgumentError
from service.text.markup.document import Chars, Document, EndTag, Item, StartTag, TextRun, Verbatim
from service.text.markup.formats import Format
from service.text.markup.markup_translator import MarkupTranslator
from service.text.options import TextOptions
from service.things.interface import LinkedTranslator, Stage
from service.things.joined_results import index_in, renamed, with_field
from service.translation.engine_call import CallArguments, admitted_once
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import TextResult
from service.translation.translator import StreamDelta

# Texts with this many characters are searched within some milliseconds, on the event loop.
_SMALL_CHARACTERS = 1000
# Repetitions have limits: linear time on any input.
_ROLE = r":[A-Za-z][\w:.+-]{0,40}:"
_LINK = re.compile(
    rf"""
    (?<![\w`\\])(?:
      (?P<opens>(?:{_ROLE})?`)(?P<text>[^`<>\n]{{1,300}}?)(?P<closes>\s{{0,10}}<[^<>`\n]{{1,1000}}>`(?:__?(?!\w))?)
    | (?:{_ROLE})`[^`\n]{{1,300}}`                 # :ref:`name`
    | `[^`<>\n]{{1,300}}`__?(?!\w)                 # `name`_
    | ``[^`\n]{{1,300}}``
    | \[(?:\d{{1,4}}|\#\w{{0,40}}|\*|[A-Z]\w{{0,40}})\]_(?!\w)  # [1]_, of a note
    )
    """,
    re.VERBOSE,
)
# A text without one of these is not reStructuredText: backticks are those of Markdown too.
_SIGN = re.compile(rf">`_|\w`__?(?!\w)|\]_(?!\w)|{_ROLE}`")


def has_links(text: str) -> bool:
    """Whether a text has links of reStructuredText."""
    if not _may_have_links(text):
        return False
    return _SIGN.search(text) is not None and _LINK.search(text) is not None


def _may_have_links(text: str) -> bool:
    """Whether a text may have links: a fast scan, for the many texts that have none."""
    return "`_" in text or ":`" in text or "]_" in text


async def _linked(texts: Sequence[str]) -> list[int]:
    """The indices of texts that have links."""
    found = [index for index, text in enumerate(texts) if _may_have_links(text)]
    if not found:
        return []

    def search() -> list[int]:
        return [index for index in found if has_links(texts[index])]

    is_small = sum(len(texts[index]) for index in found) <= _SMALL_CHARACTERS
    return await in_turn(search, is_short=is_small)


def parse_links(text: str) -> Document:
    """A plain text as one run, whose links are elements."""
    return [TextRun(list(_items(text)))]


def _items(text: str) -> Iterator[Item]:
    end = 0
    for match in _LINK.finditer(text):
        if end < match.start():
            yield Chars(text[end : match.start()], text[end : match.start()])
        end = match.end()
        if match["opens"] is None or (match["opens"] == "`" and match["closes"].endswith("`")):
            yield Verbatim(match[0])
        else:
            yield StartTag(match["opens"], "`")
            yield Chars(match["text"], match["text"])
            yield EndTag(match["closes"], "`")
    if end < len(text):
        yield Chars(text[end:], text[end:])


class RestLinkTranslator(Stage):
    """The stage that keeps links of reStructuredText in plain texts."""

    def __init__(
        self, below: LinkedTranslator, options: TextOptions, limits: TranslatorLimits
    ) -> None:
        super().__init__(below)
        self._options = options
        self._limits = limits

    @property
    def _linked(self) -> MarkupTranslator:
        """The stage for texts with links, which are rare."""
        reserved = self._options.glossary.placeholders
        document_format = Format(parse_links, str, reserved=reserved)
        return MarkupTranslator(self._below, self._options, self._limits, document_format)

    async def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> list[TextResult]:
        """Translate texts; those with links of reStructuredText have results without `links`."""
        linked = await _linked(texts)
        if not linked:
            return await self._below.translate(texts, options, **shared)
        if options is not None and (options.target_prefix or options.returns_sentences):
            return await self._below.translate(texts, options, **shared)
        names = [f"contents[{index}]" for index in range(len(texts))]
        self._limits.check_lengths("contents", names, [len(text) for text in texts])
        has_link = set(linked)
        others = [index for index in range(len(texts)) if index not in has_link]
        results: dict[int, TextResult] = {}
        with admitted_once(shared) as arguments:
            for stage, indices in ((self._linked, linked), (self._below, others)):
                if not indices:
                    continue
                try:
                    found = await stage.translate(
                        [texts[index] for index in indices], options, **arguments
                    )
                except InvalidArgumentError as exc:
                    if (index := index_in(exc)) is None:
                        raise
                    raise renamed(exc, names[indices[index]]) from exc
                results.update(zip(indices, found, strict=True))
        return [with_field(results[index], name) for index, name in enumerate(names)]

    async def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> AsyncGenerator[StreamDelta | TextResult, None]:
        """Translate one text as a stream; one with links is one delta."""
        prefix = options is not None and options.target_prefix
        if prefix or not await _linked([text]):
            async with aclosing(self._below.stream(text, options, **shared)) as events:
                async for event in events:
                    yield event
            return
        [result] = await self._linked.translate([text], options, **shared)
        if result.error is not None:
            raise renamed(result.error, "content")
        yield StreamDelta(result.text)
        yield result

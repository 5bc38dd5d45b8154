"""A scripted translator, and the stage of things and terms over it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from model.bundle.spans import Span
from service.domain.requests import FinishReason
from service.errors import InvalidArgumentError, ResourceExhaustedError
from service.things.scanned import TermRules
from service.things.terms_translator import TermsTranslator
from service.translation.links import Link
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import SentenceHypothesis, SentenceResult, TextResult
from service.translation.translator import StreamDelta


@dataclass
class FakeTranslator:
    """Translates word by word, and damages some words; it reads capitals badly.

    Attributes:
        damaged: what it can't copy, and what it writes instead.
        words: what it translates otherwise; other words stay.
        calls: the texts of each call, with its options.
        room: calls that it takes; then it is full.
    """

    damaged: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[list[str], TranslateOptions]] = field(default_factory=list)
    room: int = 1000

    async def translate(
        self, texts: Sequence[str], options: TranslateOptions | None = None, **shared: Any
    ) -> list[TextResult]:
        options = options or TranslateOptions()
        self.calls.append((list(texts), options))
        if len(self.calls) > self.room:
            raise ResourceExhaustedError("full")
        await asyncio.sleep(0)
        return [self._translated(text, options, index) for index, text in enumerate(texts)]

    async def enter(self, options: TranslateOptions | None = None, **shared: Any) -> None:
        if len(self.calls) >= self.room:
            raise ResourceExhaustedError("full")

    async def stream(
        self, text: str, options: TranslateOptions | None = None, **shared: Any
    ) -> AsyncGenerator[StreamDelta | TextResult, None]:
        [result] = await self.translate([text], options)
        for start in range(0, len(result.text), 3):
            yield StreamDelta(result.text[start : start + 3])
        yield result

    def _translated(self, text: str, options: TranslateOptions, index: int) -> TextResult:
        if "\0" in text:
            error = InvalidArgumentError(f"contents[{index}]", "has a NUL")
            return TextResult("", None, error=error)
        output, links, likely = "", [], -1.0
        forced = options.target_prefix.split()
        for match in re.finditer(r"\s+|[^\s.]+|\.", text):
            word = match.group()
            for old, new in self.damaged.items():
                word = word.replace(old, new)
            if word.isupper() and len(word) > 1 and word.isalpha():
                word, likely = "GRR", -2.0
            put = self.words.get(word, word)
            if forced and put.strip():
                put = forced.pop(0)
            if put.strip():
                links.append(Link(Span(*match.span()), Span(len(output), len(output) + len(put))))
            output += put
        hypothesis = SentenceHypothesis(output, likely, likely, FinishReason.EOS)
        return TextResult(
            output,
            FinishReason.EOS,
            num_source_tokens=len(text.split()),
            num_target_tokens=0,
            sentences=[SentenceResult(text, [hypothesis])] if options.num_hypotheses else (),
            links=links if options.links else (),
        )


def stage(below: FakeTranslator, **rules: Any) -> TermsTranslator:
    return TermsTranslator(below, TermRules("en", "de", **rules), TranslatorLimits())


async def translated(below: FakeTranslator, *texts: str, **rules: Any) -> list[str]:
    return [result.text for result in await stage(below, **rules).translate(texts)]


THINGS = (
    "{name} {0} %s %(n)d %1$s $HOME ${x} https://example.com/a?b=c www.example.org tom@example.com"
    r" `ls` 🎉 © € 1,250.50 3.5 42 2024 [X7X] @tom \n \r\n"
)
things = st.sampled_from(THINGS.split(" "))
words = st.sampled_from(["dog", "house", "runs", "the", "a", "Berlin", "of"])
sentences = st.lists(things | words, min_size=1, max_size=8).map(
    lambda parts: " ".join(parts) + "."
)
texts = st.lists(sentences, min_size=1, max_size=4).map(" ".join) | st.text(max_size=40)

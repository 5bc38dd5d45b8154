"""A translator at the seam of stages: shuffles the words of each line, and links them."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Unpack

from model.bundle.spans import Span
from service.domain.requests import FinishReason
from service.translation.engine_call import CallArguments
from service.translation.links import Link, LinkedText
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import TextResult
from service.translation.translator import StreamDelta


class FakeLinkedTranslator:
    """Turns "a dog runs" into "runs' a' dog'", for example; always the same for the same line.

    Lines without a letter, and white space around lines, are copied. `{1}` does not change.

    Attributes:
        texts: texts of all calls.
        options: options of each call.
        links_words: whether links join words; otherwise lines.
    """

    def __init__(self, *, links_words: bool = True) -> None:
        self.limits = TranslatorLimits()
        self.texts: list[str] = []
        self.options: list[TranslateOptions | None] = []
        self.links_words = links_words

    async def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> list[TextResult]:
        """Translate all texts."""
        self.texts += texts
        self.options.append(options)
        return [self.result(text) for text in texts]

    async def enter(
        self, options: TranslateOptions | None = None, **shared: Unpack[CallArguments]
    ) -> None:
        """Admit the call at once."""

    async def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> AsyncGenerator[StreamDelta | TextResult, None]:
        """Yield one delta, and the result."""
        result = self.result(text)
        yield StreamDelta(result.text)
        yield result

    def result(self, text: str) -> TextResult:
        """The translation of one text, with links."""
        pieces = LinkedText()
        translated = []
        for line in re.split(r"(\n)", text):
            body = line.strip()
            start = line.find(body)
            pieces.copy(line[:start])
            if any(map(str.isalpha, body)):
                target, links = shuffled(body)
                pieces.translate(body, target, links if self.links_words else None)
            else:
                target = body
                pieces.copy(body)
            pieces.copy(line[start + len(body) :])
            translated.append(line[:start] + target + line[start + len(body) :])
        return TextResult(
            "".join(translated), FinishReason.EOS, len(text.split()), 1, links=pieces.links
        )


def shuffled(line: str) -> tuple[str, list[Link]]:
    """The words of a line in another order, each marked, with their links."""
    words = [Span(*match.span()) for match in re.finditer(r"\S+", line)]
    random.Random(line).shuffle(words)
    target = ""
    links = []
    for word in words:
        start = len(target) + bool(target)
        target += " " * bool(target) + line[slice(*word)]
        if not re.fullmatch(r"\{\d+\}", line[slice(*word)]):
            target += "'s"
        links.append(Link(word, Span(start, len(target))))
    return target, links

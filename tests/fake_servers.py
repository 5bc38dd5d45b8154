"""Servers for the jobs of `dragoman batch`, as its clients see them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from dragoman.client import (
    FinishReason,
    Translation,
    TranslationBatch,
    TranslationError,
    TranslationWarning,
)

Failure = Callable[[Sequence[str]], "TranslationError | None"]


def failure(code: str, **about: Any) -> TranslationError:
    """An error of a call."""
    return TranslationError(grpc.StatusCode[code], "for the test", **about)


@dataclass
class FakeServer:
    """Translates a text to itself in brackets.

    Attributes:
        fails: the error of a call with some texts, or None.
        warns: whether each translation has a warning.
        mark: what stands before the text, for a server with other options.
        translated: how often each text was.
    """

    fails: Failure = lambda texts: None
    warns: bool = False
    mark: str = ""
    translated: Counter[str] = field(default_factory=Counter)

    async def translate(self, texts: Sequence[str], **arguments: Any) -> TranslationBatch:
        """Translate texts."""
        await asyncio.sleep(0)
        if (error := self.fails(texts)) is not None:
            raise error
        self.translated.update(texts)
        return TranslationBatch([self._translation(text) for text in texts], "fake", 0.0, 0.0, "1")

    def _translation(self, text: str) -> Translation:
        warnings = (TranslationWarning("missing", text, text),) if self.warns else ()
        return Translation(f"[{self.mark}{text}]", FinishReason.EOS, 1, 1, False, warnings=warnings)

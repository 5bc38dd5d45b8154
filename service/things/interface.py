"""The interface of a stage: translates texts, and says where each part comes from."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, Unpack

from service.translation.engine_call import CallArguments
from service.translation.links import Link
from service.translation.options import TranslateOptions
from service.translation.results import TextResult
from service.translation.translator import StreamDelta

__all__ = ["Link", "LinkedTranslator", "Stage"]


class LinkedTranslator(Protocol):
    """Translates texts: `Translator`, `PivotTranslator`, or a stage over one of them."""

    async def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> list[TextResult]:
        """Translate all texts, with the arguments and errors of `Translator.translate`.

        If `options.links` is set, the results have links. Those of a model without alignments, and
        with a pivot, join whole sentences; others join words. Text that was copied has one link,
        between two equal parts.
        """
        ...

    async def enter(
        self, options: TranslateOptions | None = None, **shared: Unpack[CallArguments]
    ) -> None:
        """Begin a call with an admission for all its parts, before long texts are parsed.

        Raises what `translate` would raise now because of the engine.
        """
        ...

    def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> AsyncGenerator[StreamDelta | TextResult, None]:
        """Translate one text as a stream; see `Translator.stream`. Its result has no links."""
        ...


class Stage:
    """The base class of stages.

    Args:
        below: the stage or translator that this one calls.
    """

    def __init__(self, below: LinkedTranslator) -> None:
        self._below = below

    async def enter(
        self, options: TranslateOptions | None = None, **shared: Unpack[CallArguments]
    ) -> None:
        """Begin a call; see `LinkedTranslator.enter`."""
        await self._below.enter(options, **shared)

"""The lines of `dragoman translate`: requests and results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from cli.line_calls import CallOutcome, LineCalls, is_about_a_text, reason
from cli.options import ServerAccess
from cli.shown_warnings import show_warnings
from dragoman.client import Translation, TranslationError


class LineTranslator(LineCalls[str]):
    """Translates lines, and writes the translations to standard output.

    With `num_hypotheses`, it writes as many lines for each line, best first: the line's number, the
    score and the translation, with tabs between. These are not split into sentences.

    Args:
        server, timeout, unit, advance: as for `LineCalls`.
        num_hypotheses, split_sentences: as for `dragoman.client.Client.translate`.
    """

    def __init__(
        self,
        server: ServerAccess,
        timeout: float,
        unit: str,
        advance: Callable[[int, int], None],
        *,
        num_hypotheses: int | None = None,
        split_sentences: bool = True,
        **arguments: Any,
    ) -> None:
        split_sentences = split_sentences and num_hypotheses is None
        super().__init__(
            server, timeout, unit, advance, split_sentences=split_sentences, **arguments
        )
        self._num_hypotheses = num_hypotheses

    async def run_streaming(self, lines: AsyncIterator[list[bytes]]) -> int:
        """Translate one line at a time, and write each piece as it is made. Returns as `run`."""
        async for available in lines:
            for line in available:
                outcome = await self._answer(self._stream(line))
                self._write([line], [outcome])
        return self._num_failed

    def _parse(self, line: str) -> str:
        return line

    async def _call(self, items: list[str]) -> list[CallOutcome]:
        answer = await self._client.translate(
            items, num_hypotheses=self._num_hypotheses, **self._arguments
        )
        return [
            self._outcome(line, translation)
            for line, translation in zip(items, answer.translations, strict=True)
        ]

    def _outcome(self, line: str, translation: Translation) -> CallOutcome:
        if translation.error:
            return CallOutcome(error=reason(translation.error))
        show_warnings(translation.warnings)
        if self._num_hypotheses is None:
            return CallOutcome((translation.text,))
        if not translation.sentences:  # nothing to translate
            return _ranked([(0.0, translation.text)])
        if len(translation.sentences) > 1:
            return CallOutcome(error="too long to be translated in one piece, as --n-best requires")
        [sentence] = translation.sentences
        # White space and line markers, which may have the same letters: "a) a".
        before, _, after = line.rpartition(sentence.source_text)
        return _ranked([(h.score, before + h.text + after) for h in sentence.hypotheses])

    async def _stream(self, line: bytes) -> CallOutcome:
        """Write the pieces of one line's translation as they are made."""
        text = self._parsed(line)
        if isinstance(text, CallOutcome):
            return text
        try:
            async for event in self._client.stream(text, **self._arguments):
                if isinstance(event, str):
                    self._print(event)
                else:
                    show_warnings(event.warnings)
        except TranslationError as exc:
            if not is_about_a_text(exc):
                raise
            return CallOutcome(error=reason(exc))
        return CallOutcome()


def _ranked(hypotheses: list[tuple[float, str]]) -> CallOutcome:
    return CallOutcome(
        tuple(f"{score:.6f}\t{text}" for score, text in hypotheses), is_numbered=True
    )

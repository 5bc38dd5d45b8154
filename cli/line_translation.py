"""`dragoman translate`'s lines: what is asked for each, and what is written for the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from cli.line_calls import CallOutcome, LineCalls, is_about_a_text, reason
from dragoman.client import Search, Translation, TranslationError


@dataclass(frozen=True)
class TranslationJob:
    """What to ask of which server; fields as in `dragoman.client.Client.translate`.

    With `num_hypotheses` each line is answered by as many lines, best first: the line's number, the
    score and the translation, with tabs between. Such lines are not split into sentences.
    """

    server: str
    source: str = ""
    target: str = ""
    model: str = ""
    max_new_tokens: int | None = None
    split_sentences: bool = True
    timeout: float = 60.0
    search: Search | None = None
    num_hypotheses: int | None = None


class LineTranslator(LineCalls[str]):
    """Translates lines and writes the translations to standard output.

    Args:
        job: what to ask of which server.
        unit: "line" or "text", for messages.
        advance: called with the lines and bytes that are done.
    """

    def __init__(self, job: TranslationJob, unit: str, advance: Callable[[int, int], None]) -> None:
        super().__init__(job.server, job.timeout, unit, advance)
        self._job = job

    async def run_streaming(self, lines: AsyncIterator[list[bytes]]) -> int:
        """As `run`, one line after another, each written piece by piece."""
        async for available in lines:
            for line in available:
                outcome = await self._answer(self._stream(line))
                self._write([line], [outcome])
        return self._num_failed

    def _parse(self, line: str) -> str:
        return line

    async def _call(self, items: list[str]) -> list[CallOutcome]:
        job = self._job
        answer = await self._client.translate(
            items,
            source=job.source,
            target=job.target,
            model=job.model,
            max_new_tokens=job.max_new_tokens,
            split_sentences=job.split_sentences and job.num_hypotheses is None,
            search=job.search,
            num_hypotheses=job.num_hypotheses,
        )
        return [
            self._outcome(line, translation)
            for line, translation in zip(items, answer.translations, strict=True)
        ]

    def _outcome(self, line: str, translation: Translation) -> CallOutcome:
        if translation.error:
            return CallOutcome(error=reason(translation.error))
        if self._job.num_hypotheses is None:
            return CallOutcome((translation.text,))
        if not translation.sentences:  # nothing that a model could translate
            return _ranked([(0.0, translation.text)])
        if len(translation.sentences) > 1:
            return CallOutcome(error="too long to be translated in one piece, as --n-best needs it")
        [sentence] = translation.sentences
        before, _, after = line.partition(sentence.source_text)  # white space, a list's marker
        return _ranked([(h.score, before + h.text + after) for h in sentence.hypotheses])

    async def _stream(self, line: bytes) -> CallOutcome:
        """Write the pieces of one line's translation as they come."""
        text = self._parsed(line)
        if isinstance(text, CallOutcome):
            return text
        job = self._job
        try:
            async for event in self._client.stream(
                text,
                source=job.source,
                target=job.target,
                model=job.model,
                max_new_tokens=job.max_new_tokens,
                split_sentences=job.split_sentences,
                search=job.search,
            ):
                if isinstance(event, str):
                    self._print(event)
        except TranslationError as exc:
            if not is_about_a_text(exc):
                raise
            return CallOutcome(error=reason(exc))
        return CallOutcome()


def _ranked(hypotheses: list[tuple[float, str]]) -> CallOutcome:
    return CallOutcome(
        tuple(f"{score:.6f}\t{text}" for score, text in hypotheses), is_numbered=True
    )

"""Many lines through a server: batched, with a bounded number of calls in flight, in order."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TypeAlias, TypeVar

import grpc
import typer

from cli.unreachable import describe
from dragoman.client import AsyncClient, Search, Translation, TranslationError

# Large enough that a server's batch stays full, small enough that memory and the time to the first
# line stay small whatever the length of the input.
_BATCH_LINES = 64
_BATCH_BYTES = 64_000
_CALLS_IN_FLIGHT = 8


@dataclass(frozen=True)
class Job:
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


class CallFailedError(Exception):
    """The server could not be asked, or refuses every text alike. The message is for the user."""


@dataclass(frozen=True)
class _Outcome:
    """What became of one line: its translation, or why there is none."""

    text: str = ""
    error: str = ""
    hypotheses: tuple[tuple[float, str], ...] = ()


_Calls: TypeAlias = "asyncio.Queue[tuple[list[bytes], asyncio.Task[list[_Outcome]]] | None]"
_T = TypeVar("_T")


class LineTranslator:
    """Translates lines and writes the translations to standard output.

    Args:
        job: what to ask of which server.
        unit: "line" or "text", for messages.
        advance: called with the lines and bytes that are done.
    """

    def __init__(self, job: Job, unit: str, advance: Callable[[int, int], None]) -> None:
        self._job = job
        self._unit = unit
        self._advance = advance
        self._client = AsyncClient(job.server, timeout=job.timeout)
        self._num_done = 0
        self._num_failed = 0

    async def __aenter__(self) -> LineTranslator:
        """The translator itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        await self._client.close()

    async def run(self, lines: AsyncIterator[list[bytes]]) -> int:
        """Translate all lines; the number of those that failed.

        Raises:
            CallFailedError: it can't go on.
        """
        # A call leaves the queue only when its turn to be written has come: the queue's size bounds
        # how many are in flight, and so how far ahead the input is read.
        calls: _Calls = asyncio.Queue(maxsize=_CALLS_IN_FLIGHT)
        sender = asyncio.ensure_future(self._send(lines, calls))
        try:
            while (item := await calls.get()) is not None:
                batch, call = item
                self._write(batch, await self._answer(call))
            await sender
        finally:
            sender.cancel()
            while not calls.empty():
                if (item := calls.get_nowait()) is not None:
                    item[1].cancel()
        return self._num_failed

    async def run_streaming(self, lines: AsyncIterator[list[bytes]]) -> int:
        """As `run`, one line after another, each written piece by piece."""
        async for available in lines:
            for line in available:
                outcome = await self._answer(self._stream(line))
                self._write([line], [outcome])
        return self._num_failed

    async def _send(self, lines: AsyncIterator[list[bytes]], calls: _Calls) -> None:
        try:
            async for available in lines:
                for batch in _batches(available):
                    call = asyncio.ensure_future(self._translate(batch))
                    call.add_done_callback(_forget)
                    await calls.put((batch, call))
        finally:
            await calls.put(None)

    async def _answer(self, call: Awaitable[_T]) -> _T:
        """What a call gives.

        Raises:
            CallFailedError: it failed, and not because of a text.
        """
        try:
            return await call
        except TranslationError as exc:
            reason = describe(self._job.server, exc)
            if self._num_done or self._unit == "line":
                reason += f" (stopped at {self._unit} {self._num_done + 1})"
            raise CallFailedError(reason) from exc

    async def _translate(self, batch: list[bytes]) -> list[_Outcome]:
        decoded = [_decode(line) for line in batch]
        texts = [item for item in decoded if isinstance(item, str)]
        answers = iter(await self._ask(texts) if texts else [])
        return [next(answers) if isinstance(item, str) else item for item in decoded]

    async def _ask(self, texts: list[str]) -> list[_Outcome]:
        """One call, again when the server was too busy, in halves when it refused some text."""
        job, patience_ends = self._job, time.monotonic() + self._job.timeout
        while True:
            try:
                answer = await self._client.translate(
                    texts,
                    source=job.source,
                    target=job.target,
                    model=job.model,
                    max_new_tokens=job.max_new_tokens,
                    split_sentences=job.split_sentences and job.num_hypotheses is None,
                    search=job.search,
                    num_hypotheses=job.num_hypotheses,
                )
                return [self._outcome(item) for item in answer.translations]
            except TranslationError as exc:
                delay = exc.retry_after_seconds
                if delay is not None and time.monotonic() + delay < patience_ends:
                    # Spread, so that all who were refused don't come back together.
                    await asyncio.sleep(delay * random.uniform(1.0, 1.5))
                    continue
                if not _is_about_a_text(exc):
                    raise
                if len(texts) == 1:
                    return [_Outcome(error=_reason(exc))]
            middle = len(texts) // 2
            return [*await self._ask(texts[:middle]), *await self._ask(texts[middle:])]

    def _outcome(self, translation: Translation) -> _Outcome:
        if translation.error:
            return _Outcome(error=_reason(translation.error))
        if self._job.num_hypotheses is None:
            return _Outcome(translation.text)
        if not translation.sentences:  # nothing that a model could translate
            return _Outcome(hypotheses=((0.0, translation.text),))
        if len(translation.sentences) > 1:
            return _Outcome(error="too long to be translated in one piece, as --n-best needs it")
        [sentence] = translation.sentences
        return _Outcome(hypotheses=tuple((h.score, h.text) for h in sentence.hypotheses))

    async def _stream(self, line: bytes) -> _Outcome:
        """Write the pieces of one line's translation as they come."""
        text = _decode(line)
        if isinstance(text, _Outcome):
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
            if not _is_about_a_text(exc):
                raise
            return _Outcome(error=_reason(exc))
        return _Outcome()

    def _write(self, batch: list[bytes], outcomes: list[_Outcome]) -> None:
        """The lines' translations, and on standard error what was wrong with them."""
        for outcome in outcomes:
            self._num_done += 1
            for score, text in outcome.hypotheses:
                self._print(f"{self._num_done}\t{score:.6f}\t{text}", end="\n")
            if not outcome.hypotheses:
                self._print(outcome.text, end="\n")
            if outcome.error:
                self._num_failed += 1
                typer.echo(f"dragoman: {self._unit} {self._num_done}: {outcome.error}", err=True)
        self._advance(len(batch), sum(len(line) + 1 for line in batch))

    def _print(self, text: str, end: str = "") -> None:
        if self._unit == "line":
            text = text.replace("\n", " ")  # a model can write any byte, but a line stays a line
        # UTF-8 like the input, whatever the locale says.
        sys.stdout.buffer.write((text + end).encode())
        sys.stdout.buffer.flush()


def _forget(call: asyncio.Task[list[_Outcome]]) -> None:
    """Let a call that nobody will wait for fail in silence: an earlier one has ended the run."""
    if not call.cancelled():
        call.exception()


def _batches(lines: list[bytes]) -> Iterator[list[bytes]]:
    """`lines` in groups of a bounded number and size; a longer line is a group of its own."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and (len(batch) == _BATCH_LINES or size + len(line) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield batch


def _decode(line: bytes) -> str | _Outcome:
    try:
        return line.decode()
    except UnicodeDecodeError as exc:
        return _Outcome(error=f"not valid UTF-8 at byte {exc.start + 1}")


def _is_about_a_text(error: TranslationError) -> bool:
    """Whether another text might have gone through in the same call."""
    if error.code is grpc.StatusCode.INVALID_ARGUMENT:
        return error.field.startswith("content")
    # A message over gRPC's own limit has no hint when to try again.
    return error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and error.retry_after_seconds is None


def _reason(error: TranslationError) -> str:
    """What is wrong, without the text's place in our call, which means nothing to the user."""
    return error.description or error.message

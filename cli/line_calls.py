"""Many lines through a server: batched, with a bounded number of calls in flight, in order."""

from __future__ import annotations

import abc
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar

import grpc
import typer

from cli.unreachable import describe
from dragoman.client import AsyncClient, TranslationError

# Large enough that a server's batch stays full, small enough that memory and the time to the first
# line stay small whatever the length of the input.
_BATCH_LINES = 64
_BATCH_BYTES = 64_000
_CALLS_IN_FLIGHT = 8


class CallFailedError(Exception):
    """The server could not be asked, or refuses every text alike. The message is for the user."""


@dataclass(frozen=True)
class CallOutcome:
    """What became of one line: what to write for it, or why there is nothing.

    Attributes:
        lines: to write; several for a list of the best.
        error: for standard error; "" if there is none.
        is_numbered: whether the line's number and a tab come before each.
    """

    lines: tuple[str, ...] = ("",)
    error: str = ""
    is_numbered: bool = False


Item = TypeVar("Item")
_T = TypeVar("_T")
_Calls: TypeAlias = "asyncio.Queue[tuple[list[bytes], asyncio.Task[list[CallOutcome]]] | None]"


class LineCalls(abc.ABC, Generic[Item]):
    """Sends lines to a server and writes what comes back to standard output.

    Args:
        server: its address.
        timeout: seconds that a call may take.
        unit: "line" or "text", for messages.
        advance: called with the lines and bytes that are done.
    """

    def __init__(
        self, server: str, timeout: float, unit: str, advance: Callable[[int, int], None]
    ) -> None:
        self._server = server
        self._unit = unit
        self._advance = advance
        self._client = AsyncClient(server, timeout=timeout)
        self._num_done = 0
        self._num_failed = 0

    @abc.abstractmethod
    def _parse(self, line: str) -> Item | CallOutcome:
        """What to send for a line, or what is wrong with it."""

    @abc.abstractmethod
    async def _call(self, items: list[Item]) -> list[CallOutcome]:
        """One call; raises what the client raises."""

    async def __aenter__(self) -> Self:
        """Itself."""
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
        """Send all lines; the number of those that failed.

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

    async def _send(self, lines: AsyncIterator[list[bytes]], calls: _Calls) -> None:
        try:
            async for available in lines:
                for batch in _batches(available):
                    call = asyncio.ensure_future(self._process(batch))
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
            reason = describe(self._server, exc)
            if self._num_done or self._unit == "line":
                reason += f" (stopped at {self._unit} {self._num_done + 1})"
            raise CallFailedError(reason) from exc

    async def _process(self, batch: list[bytes]) -> list[CallOutcome]:
        parsed = [self._parsed(line) for line in batch]
        items = [item for item in parsed if not isinstance(item, CallOutcome)]
        answers = iter(await self._ask(items) if items else [])
        return [item if isinstance(item, CallOutcome) else next(answers) for item in parsed]

    def _parsed(self, line: bytes) -> Item | CallOutcome:
        try:
            return self._parse(line.decode())
        except UnicodeDecodeError as exc:
            return CallOutcome(error=f"not valid UTF-8 at byte {exc.start + 1}")

    async def _ask(self, items: list[Item]) -> list[CallOutcome]:
        """One call, in halves when the server refused some text.

        When the server was too busy the client has asked again already, as long as there was time.
        """
        try:
            return await self._call(items)
        except TranslationError as exc:
            if not is_about_a_text(exc):
                raise
            if len(items) == 1:
                return [CallOutcome(error=reason(exc))]
        middle = len(items) // 2
        return [*await self._ask(items[:middle]), *await self._ask(items[middle:])]

    def _write(self, batch: list[bytes], outcomes: list[CallOutcome]) -> None:
        """What the lines brought, and on standard error what was wrong with them."""
        for outcome in outcomes:
            self._num_done += 1
            for line in outcome.lines:
                prefix = f"{self._num_done}\t" if outcome.is_numbered else ""
                self._print(prefix + line, end="\n")
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


def _forget(call: asyncio.Task[list[CallOutcome]]) -> None:
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


def is_about_a_text(error: TranslationError) -> bool:
    """Whether another text might have gone through in the same call."""
    if error.code is grpc.StatusCode.INVALID_ARGUMENT:
        return error.field.startswith(("content", "pairs"))
    # A message over gRPC's own limit has no hint when to try again.
    return error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and error.retry_after_seconds is None


def reason(error: TranslationError) -> str:
    """What is wrong, without the text's place in our call, which means nothing to the user."""
    return error.description or error.message

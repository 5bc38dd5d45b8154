"""Sends lines to a server in batches, several calls at a time, and writes results in order."""

from __future__ import annotations

import abc
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeAlias, TypeVar

import grpc
import typer

from cli.exits import describe, fail
from cli.options import ServerAccess
from cli.standard_input import InputError
from dragoman.client import TranslationError

# Large enough to fill a server's batch; small enough for low memory and an early first line.
_BATCH_LINES = 64
_BATCH_BYTES = 64_000
_CALLS_IN_FLIGHT = 8


class CallFailedError(Exception):
    """A call failed, and not because of a text. The message is for the user."""


@dataclass(frozen=True)
class CallOutcome:
    """The result of one line.

    Attributes:
        lines: text for standard output; several for an n-best list.
        error: message for standard error; "" if there is none.
        is_numbered: whether to write the line's number and a tab before each.
    """

    lines: tuple[str, ...] = ("",)
    error: str = ""
    is_numbered: bool = False


Item = TypeVar("Item")
_T = TypeVar("_T")
_Calls: TypeAlias = "asyncio.Queue[tuple[list[bytes], asyncio.Task[list[CallOutcome]]] | None]"


class LineCalls(abc.ABC, Generic[Item]):
    """Sends lines to a server, and writes the results to standard output.

    Args:
        unit: "line" or "text", for messages.
        advance: called with the numbers of finished lines and bytes.
        arguments: arguments of the client's method, the same for each call.
    """

    def __init__(
        self,
        server: ServerAccess,
        timeout: float,
        unit: str,
        advance: Callable[[int, int], None],
        **arguments: Any,
    ) -> None:
        self._server = server
        self._unit = unit
        self._advance = advance
        self._arguments = arguments
        self._client = server.async_client(timeout)
        self._num_done = 0
        self._num_failed = 0

    @abc.abstractmethod
    def _parse(self, line: str) -> Item | CallOutcome:
        """The request for a line, or its error."""

    @abc.abstractmethod
    async def _call(self, items: list[Item]) -> list[CallOutcome]:
        """Make one call; raises what the client raises."""

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the connection."""
        await self._client.close()

    async def run(self, lines: AsyncIterator[list[bytes]]) -> int:
        """Send all lines, and return the number of failed ones.

        Raises:
            CallFailedError: a call failed, and not because of a text.
        """
        # A call leaves the queue when it is next to be written. So the size of the queue bounds the
        # calls in flight, and how far ahead the input is read.
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
        """The result of a call.

        Raises:
            CallFailedError: it failed, and not because of a text.
        """
        try:
            return await call
        except TranslationError as exc:
            reason = describe(self._server.address, exc)
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
        """Make one call; if the server refuses a text, make two with half of the items each."""
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
        """Write the results of the lines to standard output, and their errors to standard error."""
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
            text = text.replace("\n", " ")  # a model can generate line breaks
        # UTF-8 like the input, whatever the locale.
        sys.stdout.buffer.write((text + end).encode())
        sys.stdout.buffer.flush()


def _forget(call: asyncio.Task[list[CallOutcome]]) -> None:
    """Ignore the error of a call after an earlier call ended the run."""
    if not call.cancelled():
        call.exception()


def _batches(lines: list[bytes]) -> Iterator[list[bytes]]:
    """`lines` in batches of bounded number and size; a longer line is a batch of its own."""
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
    """Whether a call failed because of a text: without it, the call might have succeeded."""
    if error.code is grpc.StatusCode.INVALID_ARGUMENT:
        return error.field.startswith(("content", "pairs"))
    # A message over gRPC's own limit comes without a time to retry after.
    return error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and error.retry_after_seconds is None


def reason(error: TranslationError) -> str:
    """The message of an error, without the field of our call, which means nothing to the user."""
    return error.description or error.message


def run_lines(work: Coroutine[Any, Any, int]) -> None:
    """Run `work`, which returns the number of failed lines, to the end of the command.

    Raises:
        typer.Exit: a line or the run failed; with the command's exit status.
    """
    try:
        num_failed = asyncio.run(work)
    except (CallFailedError, InputError) as exc:
        fail(str(exc))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # The reader of our output has ended. Discard what Python still flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except OSError as exc:
        fail(f"{exc.filename or 'standard output'}: {exc.strerror or exc}")
    if num_failed:
        raise typer.Exit(1)

"""The server's side of the calls of a front process."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from service.ports.grpc.front_processes.connection import FrameConnection
from service.ports.grpc.front_processes.frames import (
    MESSAGE_BYTES,
    WINDOW_BYTES,
    Frame,
    FrameKind,
    Metadata,
    fields_of,
    metadata_of,
)

_log = logging.getLogger(__name__)


class FrontContext:
    """The context of a call for its handler: the part of gRPC's that handlers use.

    Args:
        connection: connection to the front process.
        call: id of the call there.
        seconds: deadline by the monotonic clock, or infinity.
        fields: peer and metadata.
        serialize: encodes the answer, or a message of the stream.

    Attributes:
        awaits_sent: whether the front process will say when the answer has left.
    """

    def __init__(
        self,
        connection: FrameConnection,
        call: int,
        seconds: float,
        fields: Sequence[bytes],
        serialize: Callable[[Any], bytes],
    ) -> None:
        self._connection = connection
        self._call = call
        self._seconds = seconds
        self._fields = fields
        self._serialize = serialize
        self._trailing: Metadata = ()
        self._callbacks: list[Callable[[FrontContext], None]] = []
        self._num_unwritten = 0  # bytes of messages that gRPC has not taken yet
        self._written = asyncio.Event()
        self.awaits_sent = False

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """Pairs of a name in lower case and a value."""
        return metadata_of(self._fields[1:])

    def peer(self) -> str:
        """Address and port that the call came from."""
        return self._fields[0].decode()

    def time_remaining(self) -> float | None:
        """Seconds until the client's deadline; None without one."""
        return None if self._seconds == math.inf else max(0.0, self._seconds - time.monotonic())

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """Set the metadata that is sent at the end."""
        self._trailing = tuple(metadata)

    def add_done_callback(self, callback: Callable[[FrontContext], None]) -> None:
        """Call `callback` when the call has ended and its answer has left."""
        self._callbacks.append(callback)

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """Do nothing: the front process sends it before the first message of a stream."""

    async def write(self, message: Any) -> None:
        """Send a message of a stream, once gRPC has taken most of those before it."""
        while self._num_unwritten >= WINDOW_BYTES:
            self._written.clear()
            await self._written.wait()
        data = self._serialize(message)
        self._num_unwritten += len(data) + MESSAGE_BYTES
        self._send(FrameKind.MESSAGE, 0, [data])

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()
    ) -> None:
        """End the call with a status.

        Raises:
            AbortError: always.
        """
        self._trailing = trailing_metadata or self._trailing
        self.end(code, details)
        raise grpc.aio.AbortError

    def answer(self, message: Any) -> None:
        """End the call with its answer."""
        fields = [*fields_of(self._trailing), self._serialize(message)]
        self.awaits_sent = bool(self._callbacks)
        self._send(FrameKind.ANSWER, int(self.awaits_sent), fields)

    def end(self, code: grpc.StatusCode = grpc.StatusCode.OK, details: str = "") -> None:
        """End the call with a status, a stream also with OK."""
        fields = [*fields_of(self._trailing), details.encode()]
        self._send(FrameKind.STATUS, code.value[0], fields)

    def were_written(self, num_bytes: int) -> None:
        """Record that gRPC has taken messages of the stream."""
        self._num_unwritten -= num_bytes
        self._written.set()

    def has_left(self) -> None:
        """Record that the call has ended and its answer has left."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def _send(self, kind: FrameKind, number: int, fields: Sequence[bytes]) -> None:
        self._connection.send(Frame(kind, self._call, number, math.inf, fields))


class FrontCalls:
    """The calls in progress of one front process.

    Args:
        handlers: handlers of the methods, by the numbers that calls have.
    """

    def __init__(self, handlers: Sequence[Any]) -> None:
        self.connection: FrameConnection
        self._handlers = handlers
        self._running: dict[int, tuple[asyncio.Task[None], FrontContext]] = {}
        self._leaving: dict[int, FrontContext] = {}  # answered, and the answer has not left yet
        self._has_ended = False

    def take(self, frame: Frame) -> None:
        """Handle a frame from the front process about a call."""
        if frame.kind == FrameKind.CALL:
            self._begin(frame)
        elif (running := self._running.get(frame.call)) is not None:
            task, call = running
            if frame.kind == FrameKind.WRITTEN:
                call.were_written(frame.number)
            else:
                call.awaits_sent = False  # its answer will not leave, or has left already
                task.cancel()
        elif (left := self._leaving.pop(frame.call, None)) is not None:
            left.has_left()

    def cancel_all(self) -> None:
        """Cancel the calls: the front process has ended."""
        self._has_ended = True
        for task, _ in list(self._running.values()):
            task.cancel()
        leaving, self._leaving = self._leaving, {}
        for call in leaving.values():
            call.has_left()

    def _begin(self, frame: Frame) -> None:
        handler = self._handlers[frame.number]
        *fields, data = frame.fields
        serialize = handler.response_serializer
        call = FrontContext(self.connection, frame.call, frame.seconds, fields, serialize)
        task = asyncio.get_running_loop().create_task(_run(handler, call, data))
        self._running[frame.call] = task, call
        # Not in the coroutine, which a task that is cancelled at once never enters.
        task.add_done_callback(functools.partial(self._ended, frame.call, call))

    def _ended(self, number: int, call: FrontContext, _: asyncio.Task[None]) -> None:
        del self._running[number]
        if call.awaits_sent and not self._has_ended:
            self._leaving[number] = call
        else:
            call.has_left()


async def _run(handler: Any, call: FrontContext, data: bytes) -> None:
    try:
        await _answer(handler, call, data)
    except grpc.aio.AbortError:  # the status is on its way
        pass
    except asyncio.CancelledError:
        call.end(grpc.StatusCode.CANCELLED)
    except Exception:  # handlers of calls send their own errors
        _log.exception("a handler failed")
        call.end(grpc.StatusCode.INTERNAL, "internal error")


async def _answer(handler: Any, call: FrontContext, data: bytes) -> None:
    decode = handler.request_deserializer
    request = data if decode is None else decode(data)
    if not handler.response_streaming:
        call.answer(await handler.unary_unary(request, call))
        return
    responses = handler.unary_stream(request, call)
    if inspect.isasyncgen(responses):
        async with contextlib.aclosing(responses):
            async for response in responses:
                await call.write(response)
    else:
        await responses
    call.end()

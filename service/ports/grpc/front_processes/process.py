"""A front process: gRPC's connections and messages, whose calls the server answers.

    python -m service.ports.grpc.front_processes.process FILE_DESCRIPTOR LOG_LEVEL LOG_FORMAT

It knows nothing of translation: it passes on calls as they come, and answers as the server gives
them. It is started by `FrontProcess` (`group.py`), and ends when the server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import itertools
import json
import math
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import grpc
import grpc_health.v1.health_pb2  # noqa: F401  # reflection describes it

import dragoman.v1.translation_pb2  # noqa: F401  # reflection describes it
from service.errors import StartupError
from service.observability import logs
from service.ports.grpc.accepting_server import AcceptingServer
from service.ports.grpc.binding import bind
from service.ports.grpc.front_processes.connection import FrameConnection
from service.ports.grpc.front_processes.frames import (
    MESSAGE_BYTES,
    WINDOW_BYTES,
    Frame,
    FrameKind,
    fields_of,
    metadata_of,
)
from service.ports.grpc.reflection import Reflection
from service.worker.child_process import ignore_signals

# From a failed write until gRPC has noticed that the client is gone.
_GONE_SECONDS = 1.0
_SLOW = "the client reads its answer too slowly"
# Requests that are larger go to the server one at a time, so that small ones can pass.
_LARGE_BYTES = 16 * 1024
_MOST_WAITING_BYTES = 64 * 1024 * 1024
_RETRY_LATER = (("grpc-retry-pushback-ms", "1000"),)
_TOO_MUCH = (
    f"requests of over {_MOST_WAITING_BYTES // 2**20} MiB wait to be read by the server; send this "
    "one again later"
)

_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


class Forwarder:
    """Passes calls on to the server, and its answers to the clients.

    Attributes:
        write_seconds: time for a client to read so much of a stream that its next message can be
            sent.
    """

    def __init__(self, connection: Callable[[], FrameConnection]) -> None:
        self.write_seconds = math.inf
        self._connection = connection
        self._num_waiting = 0  # bytes of large requests that wait for their turn
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Queue[Frame]] = {}  # what the server has said of each call

    def take(self, frame: Frame) -> None:
        """Handle a frame from the server about a call, unless the call has ended."""
        if (answers := self._answers.get(frame.call)) is not None:
            answers.put_nowait(frame)

    def handler(self, method: int, *, streams: bool) -> Any:
        """The handler of a method, which takes and gives bytes."""
        handle: Callable[..., Awaitable[Any]] = self._streamed if streams else self._answered
        wrapped = functools.partial(self._handled, handle, method)
        if streams:
            return grpc.unary_stream_rpc_method_handler(wrapped)
        return grpc.unary_unary_rpc_method_handler(wrapped)

    async def _handled(
        self, handle: Callable[..., Awaitable[Any]], method: int, request: bytes, context: Any
    ) -> Any:
        try:
            return await handle(method, request, context)
        except grpc.aio.AbortError as exc:
            # gRPC keeps the error in the call: the frames in its traceback hold the request.
            del request, context
            raise exc.with_traceback(None) from None

    async def _answered(self, method: int, request: bytes, context: Any) -> bytes:
        async with self._forwarded(method, request, context) as (number, answers):
            del request
            frame = await answers.get()
            if frame.kind == FrameKind.STATUS:
                await _end(context, frame)
            *metadata, message = frame.fields
            context.set_trailing_metadata(metadata_of(metadata))
            if frame.number:
                context.add_done_callback(lambda _: self._send(Frame(FrameKind.SENT, number)))
            return message

    async def _streamed(self, method: int, request: bytes, context: Any) -> None:
        async with self._forwarded(method, request, context) as (number, answers):
            del request
            is_begun, num_written = False, 0
            while (frame := await answers.get()).kind == FrameKind.MESSAGE:
                if not is_begun:  # or else no status could follow a message that is given up
                    await context.send_initial_metadata(())
                    is_begun = True
                [message] = frame.fields
                try:
                    async with asyncio.timeout(self.write_seconds):
                        await context.write(message)
                except TimeoutError:
                    self._send(Frame(FrameKind.CANCEL, number))
                    await _end_slow(context, answers)
                except grpc.aio.InternalError:  # gRPC cancels this task in a moment
                    await asyncio.sleep(_GONE_SECONDS)
                    raise
                num_written += len(message) + MESSAGE_BYTES
                if num_written >= WINDOW_BYTES // 2:
                    self._send(Frame(FrameKind.WRITTEN, number, num_written))
                    num_written = 0
            await _end(context, frame)

    @contextlib.asynccontextmanager
    async def _forwarded(
        self, method: int, request: bytes, context: Any
    ) -> AsyncIterator[tuple[int, asyncio.Queue[Frame]]]:
        """Pass a call on, and cancel it in the server if it ends here before the server ends it."""
        number, answers = next(self._numbers), asyncio.Queue[Frame]()
        remaining: float | None = context.time_remaining()
        deadline = math.inf if remaining is None else time.monotonic() + remaining
        metadata = fields_of(context.invocation_metadata() or ())
        fields = [context.peer().encode(), *metadata, request]
        num_bytes = len(request)
        del request
        self._answers[number] = answers
        try:
            frame = Frame(FrameKind.CALL, number, method, deadline, fields)
            del fields
            if num_bytes > _LARGE_BYTES:
                await self._pass_on_large(frame, num_bytes, context)
            else:
                self._connection().send(frame)
            del frame
            yield number, answers
        except (asyncio.CancelledError, grpc.aio.InternalError):
            self._send(Frame(FrameKind.CANCEL, number))
            raise
        finally:
            del self._answers[number]

    async def _pass_on_large(self, frame: Frame, num_bytes: int, context: Any) -> None:
        """Pass a call on in its turn, unless too many bytes wait for theirs."""
        if self._num_waiting and self._num_waiting + num_bytes > _MOST_WAITING_BYTES:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _TOO_MUCH, _RETRY_LATER)
        self._num_waiting += num_bytes
        try:
            await self._connection().send_large(frame)
        finally:
            self._num_waiting -= num_bytes

    def _send(self, frame: Frame) -> None:
        self._connection().send(frame)


async def _end(context: Any, frame: Frame) -> None:
    """End a call with the status in a frame; a call that failed by an exception, as gRPC asks."""
    *metadata, details = frame.fields
    code, trailing = _CODES[frame.number], metadata_of(metadata)
    if code is grpc.StatusCode.OK:
        context.set_trailing_metadata(trailing)
    else:
        await context.abort(code, details.decode(), trailing)


async def _end_slow(context: Any, answers: asyncio.Queue[Frame]) -> None:
    """End a stream that its client does not read, once the server has ended it too."""
    while (frame := await answers.get()).kind != FrameKind.STATUS:
        pass
    trailing = metadata_of(frame.fields[:-1])
    await context.abort(grpc.StatusCode.CANCELLED, _SLOW, trailing)


class ForwardingServer:
    """The gRPC server of a front process."""

    def __init__(self) -> None:
        self.connection: FrameConnection
        self.ended = asyncio.Event()
        self._forwarder = Forwarder(lambda: self.connection)
        self._certificate: grpc.ServerCertificateConfiguration | None = None
        self._certificate_changed = False
        self._server: AcceptingServer
        self._reflection: Reflection
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, frame: Frame) -> None:
        """Handle a frame from the server."""
        if frame.kind in (FrameKind.ANSWER, FrameKind.MESSAGE, FrameKind.STATUS):
            self._forwarder.take(frame)
        elif frame.kind == FrameKind.PING:
            self.connection.send(Frame(FrameKind.PONG))
        elif frame.kind == FrameKind.CERTIFICATE:
            chain, key, authorities = frame.fields
            self._certificate = grpc.ssl_server_certificate_configuration(
                [(key, chain)], root_certificates=authorities or None
            )
            self._certificate_changed = True
        elif frame.kind == FrameKind.OPEN:
            self._run(self._open(**json.loads(frame.fields[0])))
        elif frame.kind == FrameKind.STOP:
            self._run(self._stop(frame.seconds))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(
        self,
        host: str,
        port: int,
        options: list[tuple[str, Any]],
        max_calls: int,
        methods: list[tuple[str, str, bool]],
        reflected: list[str],
        max_reflections: int,
        asks_clients: bool,
        write_seconds: float,
    ) -> None:
        """Listen.

        Args:
            host, port: address to listen on.
            options, max_calls: as of `AcceptingServer`.
            methods: service, name, and whether it answers with a stream, of each method.
            reflected: full names of the services that reflection describes.
            max_reflections: limit of open streams of reflection.
            asks_clients: whether clients need a certificate.
            write_seconds: as of `Forwarder`.
        """
        self._forwarder.write_seconds = write_seconds
        self._server = AcceptingServer(
            options=[tuple(option) for option in options], max_calls=max_calls
        )
        for number, (service, name, streams) in enumerate(methods):
            handler = self._forwarder.handler(number, streams=streams)
            self._server.add_registered_method_handlers(service, {name: handler})
        self._reflection = Reflection(tuple(reflected), max_reflections)
        self._reflection.add_to(self._server)
        try:
            bind(self._server, host, port, self._credentials(asks_clients))
        except StartupError as exc:
            self.connection.send(Frame(FrameKind.FAILED, fields=[str(exc).encode()]))
            return
        await self._server.start()
        gc.collect()
        gc.freeze()  # what exists now lives as long as the process
        self.connection.send(Frame(FrameKind.READY))

    def _credentials(self, asks_clients: bool) -> grpc.ServerCredentials | None:
        if self._certificate is None:
            return None
        return grpc.dynamic_ssl_server_credentials(
            self._certificate,
            self._changed_certificate,  # type: ignore[arg-type]  # None, for no change, is missing
            require_client_authentication=asks_clients,
        )

    def _changed_certificate(self) -> grpc.ServerCertificateConfiguration | None:
        """The certificate for a handshake if it is another one; called in gRPC's threads."""
        if not self._certificate_changed:
            return None
        self._certificate_changed = False
        return self._certificate

    async def _stop(self, seconds: float) -> None:
        self._reflection.start_draining()
        await self._server.stop(seconds)
        self.connection.close()


async def serve(descriptor: int) -> None:
    """Serve until the server ends the connection, or dies."""
    front = ForwardingServer()
    connected = socket.socket(fileno=descriptor)
    front.connection = await FrameConnection.over(connected, front.take, front.ended.set)
    await front.ended.wait()


def main(descriptor: int, log_level: str, log_format: str) -> None:
    """Serve, and end the process without waiting for calls that gRPC still holds."""
    ignore_signals()
    logs.configure(log_level, log_format)
    logs.log_uncaught()
    asyncio.run(_serve_and_exit(descriptor))


async def _serve_and_exit(descriptor: int) -> None:
    await serve(descriptor)
    logs.close()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])

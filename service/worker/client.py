"""The server's side of a model's process; `service.worker.main` is the other side.

The engine stays in the server's process. Its step loop runs in the model's process. Commands and
events pass between the two over a socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import subprocess
from collections.abc import Sequence
from typing import Any

from service.batching.config import EngineConfig
from service.batching.events import Events, Listener
from service.batching.records import EngineRequest
from service.errors import DragomanError, UnavailableError
from service.worker.messages import (
    PIECE_BYTES,
    Add,
    Cancel,
    Ended,
    Frames,
    Prepared,
    PrepareScoring,
    Start,
    Stop,
    Stream,
    framed,
)

logger = logging.getLogger(__name__)

MEMORY_HINT = "there may be too little memory for it"
_LACKS_MEMORY = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)

_EXIT_SECONDS = 5.0
_DEATH_SECONDS = 1.0  # from the end of the connection, or a kill, to the end of the process


class ProcessLoop:
    """The engine's step loop, in the model's process. Its methods belong to the event loop.

    Args:
        name: name of the model, for messages.
        process: the model's process.
        connection: socket connected to the process.
        config: limits and special ids.
        listener: receives the events.
    """

    def __init__(
        self,
        name: str,
        process: subprocess.Popen[bytes],
        connection: socket.socket,
        config: EngineConfig,
        listener: Listener,
    ) -> None:
        self._name = name
        self._process = process
        self._connection = connection
        self._config = config
        self._listener = listener
        self._loop: asyncio.AbstractEventLoop | None = None
        self._frames = Frames()
        self._unsent = bytearray()
        self._is_flushing = False
        self._preparing: dict[str, list[asyncio.Future[None]]] = {}  # by graph
        self._has_ended = False
        self._must_tell = False  # of an end that nobody asked for, in the log

    # --- commands --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the step loop; called in the event loop that the listener belongs to."""
        self._loop = asyncio.get_running_loop()
        self._connection.setblocking(False)
        self._loop.add_reader(self._connection, self._receive)
        self._send(Start(self._config))

    def add(self, requests: Sequence[EngineRequest]) -> None:
        """Call `StepLoop.add` in the process."""
        self._send(Add(requests))

    def stream(self, request_id: int) -> None:
        """Call `StepLoop.stream` in the process."""
        self._send(Stream(request_id))

    def cancel(self, request_id: int, error: DragomanError) -> None:
        """Call `StepLoop.cancel` in the process."""
        self._send(Cancel(request_id, error))

    async def prepare_scoring(self, graph: str) -> None:
        """Load a graph in the process, "scoring" or "attention".

        Raises:
            UnavailableError: loading failed, and the process has logged why; or it has ended.
            ResourceExhaustedError: memory ran out during loading.
        """
        if self._has_ended:
            raise self._gone()
        assert self._loop is not None, "commands before start()"
        prepared: asyncio.Future[None] = self._loop.create_future()
        self._preparing.setdefault(graph, []).append(prepared)
        self._send(PrepareScoring(graph))
        await prepared

    def stop(self) -> None:
        """End after the step in flight, even if requests are left."""
        self._send(Stop())

    def join(self) -> None:
        """Wait for the end of the process after its loop has ended, and log one by itself.

        May be called in any thread.
        """
        if self._must_tell:
            self._must_tell = False
            about = {**self._about(), "how": how_it_ended(self._process)}
            if may_lack_memory(self._process):
                about["hint"] = MEMORY_HINT
            logger.error("a model's process ended", extra=about)
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            logger.error("a model's process does not end: killed", extra=self._about())
            self._process.kill()
            # It ends at once, unless it waits for a disk that does not answer.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_DEATH_SECONDS)

    def abandon(self) -> None:
        """Kill the process because a step hangs; `join` waits for its end."""
        self._process.kill()  # first, since it ends by itself when its connection is closed
        self._close()

    # --- the socket ------------------------------------------------------------------------------

    def _send(self, message: object) -> None:
        if self._has_ended:  # the listener has been notified or is about to be
            return
        assert self._loop is not None, "commands before start()"
        try:
            self._unsent += framed(message)
        except Exception:
            self._give_up()
            return
        if not self._is_flushing:  # later, with other messages of this event loop iteration
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send as much as the socket takes at once, and the rest when there is room again."""
        if self._has_ended:
            return
        assert self._loop is not None, "commands before start()"
        try:
            while self._unsent:
                del self._unsent[: self._connection.send(self._unsent)]
        except BlockingIOError:
            self._loop.add_writer(self._connection, self._flush)
            return
        except ConnectionError:  # the process has died, which the reader is about to notice
            self._unsent.clear()
        except Exception:
            self._give_up()
            return
        self._loop.remove_writer(self._connection)
        self._is_flushing = False

    def _receive(self) -> None:
        try:
            piece = self._connection.recv(PIECE_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            piece = b""
        except Exception:
            self._give_up()
            return
        try:
            for message in self._frames.feed(piece):
                self._take(message)
        except Exception:
            self._give_up()
        if not piece and not self._has_ended:
            self._must_tell = True
            self._end(failed=True)

    def _give_up(self) -> None:
        """End after an exception, in its handler: the connection is no longer reliable.

        Without memory, for example, each further attempt would fail too.
        """
        logger.exception("the connection to a model's process failed: killed", extra=self._about())
        self._process.kill()
        self._end(failed=True)

    def _take(self, message: Any) -> None:
        match message:
            case Events():
                self._listener.on_events(message)
            case Prepared():
                self._prepared(message)
            case Ended(failed):
                self._end(failed)
            case _:
                raise AssertionError(f"unknown message: {message!r}")

    def _end(self, failed: bool) -> None:
        self._close()
        self._listener.on_end(failed)

    def _close(self) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        if self._loop is not None:
            self._loop.remove_reader(self._connection)
            self._loop.remove_writer(self._connection)
        self._connection.close()
        self._unsent.clear()
        for graph in list(self._preparing):
            self._prepared(Prepared(graph, self._gone()))

    def _gone(self) -> UnavailableError:
        return UnavailableError(f"the process of model {self._name} has ended")

    def _about(self) -> dict[str, object]:
        return {"model": self._name, "pid": self._process.pid}

    def _prepared(self, message: Prepared) -> None:
        """Answer all calls that wait for the graph."""
        for waiting in self._preparing.pop(message.graph, []):
            if waiting.done():  # cancelled
                continue
            if message.error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(message.error)


def may_lack_memory(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process died of a signal that often means a lack of memory in native code."""
    return -(process.poll() or 0) in _LACKS_MEMORY


def how_it_ended(process: subprocess.Popen[bytes]) -> str:
    """Describe the end of a process with a closed connection, for messages."""
    try:
        code = process.wait(_DEATH_SECONDS)
    except subprocess.TimeoutExpired:
        return "closed its connection"
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # a signal without a name
        return f"was killed by signal {-code}"

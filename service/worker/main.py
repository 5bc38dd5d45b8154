"""The process of one model, started by `ModelProcess`.

    python -m service.worker FILE_DESCRIPTOR LOG_LEVEL LOG_FORMAT NICENESS

In a single process, the server's own threads (calls, tokenization, metrics) and those of the steps
would wait for each other at Python's lock several times in every step.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from service.batching.events import Events
from service.batching.failures import loading_failed
from service.batching.step_loop import StepLoop
from service.batching.step_loops import step_loop, widest_sequence
from service.common import garbage
from service.domain.plan import LanedRunner
from service.errors import DragomanError, StartupError
from service.observability import logs
from service.worker.child_process import ignore_signals
from service.worker.messages import (
    PIECE_BYTES,
    Add,
    Cancel,
    Ended,
    Frames,
    NotOpened,
    Open,
    Opened,
    Prepared,
    PrepareScoring,
    Start,
    Stop,
    Stream,
    framed,
)
from service.worker.opening import OpenModel

logger = logging.getLogger(__name__)


class Channel:
    """The socket to the server. `send` may be called from any thread, and never waits.

    A separate thread sends what the socket does not take at once, so that steps do not wait for a
    busy server. Any failure (such as a lack of memory) ends the connection.

    Args:
        connection: the socket, which the channel owns.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        self._unsent = bytearray()
        self._has_failed = False
        threading.Thread(target=self._send_rest, name="sender", daemon=True).start()

    def send(self, message: object) -> None:
        """Send a message. Does nothing if the server has ended, which `messages` notices."""
        with self._changed:
            try:
                self._send(framed(message))
            except ConnectionError:
                return
            except Exception:
                self._give_up()

    def messages(self) -> Iterator[Any]:
        """Yield the server's messages until it closes the socket or dies."""
        frames = Frames()
        while True:
            try:
                piece = self._connection.recv(PIECE_BYTES)
                messages = list(frames.feed(piece))
            except ConnectionError:
                return
            except Exception:
                self._give_up()
                return
            if not piece:
                return
            yield from messages

    def _send(self, frame: bytes) -> None:
        if not self._unsent:
            with contextlib.suppress(BlockingIOError):
                frame = frame[self._connection.send(frame, socket.MSG_DONTWAIT) :]
        if frame:
            self._unsent += frame
            self._changed.notify()

    def _send_rest(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._unsent)
                    piece = bytes(self._unsent[:PIECE_BYTES])
                num_sent = self._connection.send(piece)
                with self._changed:
                    del self._unsent[:num_sent]
        except ConnectionError:
            return
        except Exception:
            self._give_up()

    def _give_up(self) -> None:
        """End the connection after an exception, in its handler; `messages` notices the end."""
        if self._has_failed:
            return
        self._has_failed = True
        logger.exception("the connection to the server failed")
        with contextlib.suppress(OSError):  # the server has closed it already
            self._connection.shutdown(socket.SHUT_RDWR)


class ModelHost:
    """Holds the model and its step loop, and sends the loop's events to the server.

    Args:
        channel: channel to the server.
        on_open: called when the model is open.
    """

    def __init__(self, channel: Channel, on_open: Callable[[], None] | None = None) -> None:
        self._channel = channel
        self._on_open = on_open
        self._model: OpenModel | None = None
        self._steps: StepLoop | None = None

    def serve(self) -> None:
        """Carry out the server's messages until it closes the socket."""
        for message in self._channel.messages():
            self._take(message)

    def _take(self, message: Any) -> None:
        match message:
            case Open():
                # In another thread, so that this one notices if the server dies during opening.
                threading.Thread(target=self._open, args=(message,), daemon=True).start()
            case Start(config):
                assert self._model is not None, "started before it was opened"
                runner, scorer = self._model.runner, self._model.scorer
                self._steps = step_loop(runner, config, time.monotonic, self, scorer)
                self._steps.start()
            case PrepareScoring(graph):
                threading.Thread(target=self._prepare, args=(graph,), daemon=True).start()
            case _:
                assert self._steps is not None, f"not started: {message!r}"
                self._command(self._steps, message)

    def _command(self, steps: StepLoop, message: Any) -> None:
        match message:
            case Add(requests):
                steps.add(requests)
            case Stream(request_id):
                steps.stream(request_id)
            case Cancel(request_id, error):
                steps.cancel(request_id, error)
            case Stop():
                steps.stop()
            case _:
                raise AssertionError(f"unknown message: {message!r}")

    # --- in threads of their own -----------------------------------------------------------------

    def _open(self, message: Open) -> None:
        try:
            self._model = model = message.open_model()
        except StartupError as exc:
            self._channel.send(NotOpened(str(exc)))
            return
        except Exception:
            logger.exception("the model could not be opened")
            self._channel.send(NotOpened("the model could not be opened; the log says why"))
            return
        if self._on_open is not None:
            self._on_open()
        runner = model.runner
        self._channel.send(
            Opened(
                limits=runner.limits,
                widest=widest_sequence(runner),
                num_lanes=len(runner.lanes) if isinstance(runner, LanedRunner) else 1,
                cache_bytes=model.cache_bytes,
                can_score=model.scorer is not None,
                step_seconds=model.step_seconds,
            )
        )

    def _prepare(self, graph: str) -> None:
        error: DragomanError | None = None
        try:
            assert self._model is not None, "started before it was opened"
            assert self._model.scorer is not None, "this model can't score"
            self._model.scorer.prepare(graph)
        except Exception as exc:
            error = loading_failed(graph, exc, logger)
        self._channel.send(Prepared(graph, error))

    # --- the step loop's listener, on its thread -------------------------------------------------

    def on_events(self, events: Events) -> None:
        """Send the events to the server."""
        self._channel.send(events)

    def on_end(self, failed: bool) -> None:
        """Tell the server that no more events follow."""
        self._channel.send(Ended(failed))


def main(descriptor: int, log_level: str, log_format: str) -> None:
    """Open the server's model, and run it until the server closes the socket.

    Args:
        descriptor: file descriptor of the socket.
        log_level: level for `service.observability.logs.configure`.
        log_format: format for the same function.
    """
    ignore_signals()
    logs.configure(log_level, log_format)
    logs.log_uncaught()
    ModelHost(Channel(socket.socket(fileno=descriptor)), garbage.look_less).serve()


def run(descriptor: int, log_level: str, log_format: str) -> None:
    """Call `main`, and end the process."""
    status = 0
    try:
        main(descriptor, log_level, log_format)
    except Exception:
        logger.exception("the model's process failed")
        status = 1
    logs.close()
    # Returning would wait for a step that hangs. The server has closed the socket or has ended, so
    # it needs nothing more.
    os._exit(status)

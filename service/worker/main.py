"""The process of one model, started by `ModelProcess`.

    python -m service.worker.main FILE_DESCRIPTOR LOG_LEVEL LOG_FORMAT

The server's own threads (calls, tokenization, metrics) and those of the steps would otherwise take
turns at Python's lock, several times in every step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from service.batching.failures import LOADING_SCORER, error_of
from service.batching.jobs import Job
from service.batching.step_loop import Events, StepLoop
from service.batching.step_loops import step_loop, widest_sequence
from service.decoding.requests import GenerationResult
from service.errors import DragomanError, StartupError
from service.observability import logs
from service.runtime.plan import LanedRunner
from service.worker import garbage
from service.worker.messages import (
    PIECE_BYTES,
    Add,
    Cancel,
    Ended,
    Frames,
    NewJob,
    NotOpened,
    Open,
    Opened,
    Prepared,
    PrepareScoring,
    Start,
    Stop,
    Stream,
    Told,
    framed,
)
from service.worker.opening import OpenModel

logger = logging.getLogger("service.worker.main")  # not __main__


class Channel:
    """The socket to the server. `send` may be called from any thread, and never waits.

    A thread of its own sends what the socket does not take at once: a busy server must not keep the
    steps waiting. Whatever fails on the way (for want of memory, say) ends the connection.

    Args:
        connection: the socket; the channel's own from now on.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        self._unsent = bytearray()
        self._has_failed = False
        threading.Thread(target=self._send_rest, name="sender", daemon=True).start()

    def send(self, message: object) -> None:
        """Send; or do nothing if the server has gone, which `messages` notices."""
        with self._changed:
            try:
                self._send(framed(message))
            except ConnectionError:
                return
            except Exception:
                self._give_up()

    def messages(self) -> Iterator[Any]:
        """What the server sends, until it closes the socket or has died."""
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
        """End the connection, which `messages` notices; in an exception's handler."""
        if self._has_failed:
            return
        self._has_failed = True
        logger.exception("the connection to the server failed")
        with contextlib.suppress(OSError):  # the server has closed it already
            self._connection.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True)
class _Number:
    """Where a job's answer goes here: to the job with this number, in the server's process."""

    value: int

    def push(self, token_ids: list[int]) -> None:
        raise AssertionError("tokens are pushed in the server's process")

    def finish(self, result: GenerationResult) -> None:
        raise AssertionError("jobs are answered in the server's process")


class ModelHost:
    """Has the model and its step loop, whose `Listener` it is.

    Args:
        channel: to the server.
        on_open: called once the model is open.
    """

    def __init__(self, channel: Channel, on_open: Callable[[], None] | None = None) -> None:
        self._channel = channel
        self._on_open = on_open
        self._model: OpenModel | None = None
        self._steps: StepLoop | None = None
        # Added by the main thread, removed by the step loop's, one entry at a time.
        self._jobs: dict[int, Job] = {}

    @property
    def num_jobs(self) -> int:
        """Jobs that have not ended."""
        return len(self._jobs)

    def serve(self) -> None:
        """Do what the server says, until it closes the socket."""
        for message in self._channel.messages():
            self._take(message)

    def _take(self, message: Any) -> None:
        match message:
            case Open():
                # In another thread: this one notices if the server dies meanwhile.
                threading.Thread(target=self._open, args=(message,), daemon=True).start()
            case Start(config):
                assert self._model is not None, "started before it was opened"
                runner, scorer = self._model.runner, self._model.scorer
                self._steps = step_loop(runner, config, time.monotonic, self, scorer)
                self._steps.start()
            case PrepareScoring():
                threading.Thread(target=self._prepare_scoring, daemon=True).start()
            case _:
                assert self._steps is not None, f"not started: {message!r}"
                self._order(self._steps, message)

    def _order(self, steps: StepLoop, message: Any) -> None:
        match message:
            case Add(jobs):
                steps.add([self._job(new) for new in jobs])
            case Stream(number):
                if (job := self._jobs.get(number)) is not None:
                    steps.stream(job)
            case Cancel(number, error):
                if (job := self._jobs.get(number)) is not None:
                    steps.cancel(job, error)
            case Stop():
                steps.stop()
            case _:
                raise AssertionError(f"unknown message: {message!r}")

    def _job(self, new: NewJob) -> Job:
        job = Job(new.request, _Number(new.number), new.max_new_tokens, new.submitted_at)
        self._jobs[new.number] = job
        return job

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

    def _prepare_scoring(self) -> None:
        error: DragomanError | None = None
        try:
            assert self._model is not None, "started before it was opened"
            assert self._model.scorer is not None, "this model can't score"
            self._model.scorer.prepare()
        except Exception as exc:
            logger.exception("the scoring graph could not be loaded")
            error = error_of(exc, LOADING_SCORER)
        self._channel.send(Prepared(error))

    # --- what the step loop tells, from its thread -----------------------------------------------

    def told(self, news: Events) -> None:
        """Pass on what happened."""
        self._channel.send(
            Told(
                [(_number(job), token_ids) for job, token_ids in news.streamed],
                [(_number(finished.job), finished.result) for finished in news.finished],
                [dataclasses.replace(iteration, joined=()) for iteration in news.iterations],
                [[_number(job) for job in iteration.joined] for iteration in news.iterations],
            )
        )
        for finished in news.finished:
            del self._jobs[_number(finished.job)]

    def ended(self, failed: bool) -> None:
        """Pass on that nothing will follow."""
        self._channel.send(Ended(failed))


def _number(job: Job) -> int:
    assert isinstance(job.reply, _Number)
    return job.reply.value


def main(descriptor: int, log_level: str, log_format: str) -> None:
    """Open the model that the server names, and run it until the server closes the socket.

    Args:
        descriptor: of the socket.
        log_level: as `service.observability.logs.configure` takes it.
        log_format: likewise.
    """
    # It is for the server to say when: Ctrl-C at a terminal goes to both, and calls in progress
    # are to be answered first. Until here, `ModelProcess` has blocked them.
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    logs.configure(log_level, log_format)
    logs.log_uncaught()
    ModelHost(Channel(socket.socket(fileno=descriptor)), garbage.look_less).serve()


if __name__ == "__main__":
    status = 0
    try:
        main(int(sys.argv[1]), *sys.argv[2:])
    except Exception:
        logger.exception("the model's process failed")
        status = 1
    logs.close()
    # Not by returning: a step that hangs would be waited for. Who closed the socket has all it
    # wants, or is no more.
    os._exit(status)

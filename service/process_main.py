"""The process of one model: `python -m service.process_main FD`, started by `ModelProcess`.

The server's own threads (calls, tokenization, metrics) and those of the steps would otherwise take
turns at Python's lock, several times in every step.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from model.out_of_memory import is_out_of_memory
from service import garbage, logs
from service.errors import StartupError
from service.jobs import Job
from service.model_opening import OpenModel
from service.plan import LanedRunner
from service.process_messages import (
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
from service.requests import GenerationResult
from service.step_loop import News
from service.step_loops import step_loop, widest_sequence

logger = logging.getLogger(__name__)

_PIECE_BYTES = 256 * 1024


class _Channel:
    """The socket to the server. `send` may be called from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, message: object) -> None:
        """Send; or do nothing if the server has gone, which `messages` notices."""
        with self._sending:
            try:
                self._connection.sendall(framed(message))
            except OSError:
                return

    def messages(self) -> Iterator[Any]:
        """What the server sends, until it closes the socket or has died."""
        frames = Frames()
        while True:
            try:
                piece = self._connection.recv(_PIECE_BYTES)
            except OSError:
                return
            if not piece:
                return
            yield from frames.feed(piece)


@dataclass(frozen=True)
class _Number:
    """Where a job's answer goes here: to the job with this number, in the server's process."""

    value: int

    def push(self, token_ids: list[int]) -> None:
        raise AssertionError("tokens are pushed in the server's process")

    def finish(self, result: GenerationResult) -> None:
        raise AssertionError("jobs are answered in the server's process")


class _Model:
    """The model and its step loop; its `Listener`."""

    def __init__(self, model: OpenModel, channel: _Channel) -> None:
        self._model = model
        self._channel = channel
        # Added by the main thread, removed by the step loop's, one entry at a time.
        self._jobs: dict[int, Job] = {}

    def serve(self, messages: Iterator[Any]) -> None:
        """Do what the messages say, until there are no more."""
        start = next(messages, None)
        if start is None:
            return
        assert isinstance(start, Start)
        runner, scorer = self._model.runner, self._model.scorer
        steps = step_loop(runner, start.config, time.monotonic, self, scorer)
        steps.start()
        for message in messages:
            match message:
                case Add(jobs):
                    steps.add([self._job(new) for new in jobs])
                case Stream(number):
                    if (job := self._jobs.get(number)) is not None:
                        steps.stream(job)
                case Cancel(number, error):
                    if (job := self._jobs.get(number)) is not None:
                        steps.cancel(job, error)
                case PrepareScoring():
                    threading.Thread(target=self._prepare_scoring, daemon=True).start()
                case Stop():
                    steps.stop()
                case _:
                    raise AssertionError(f"unknown message: {message!r}")

    def _job(self, new: NewJob) -> Job:
        job = Job(new.request, _Number(new.number), new.max_new_tokens, new.submitted_at)
        self._jobs[new.number] = job
        return job

    def _prepare_scoring(self) -> None:
        try:
            assert self._model.scorer is not None, "this model can't score"
            self._model.scorer.prepare()
        except Exception as exc:
            logger.exception("the scoring graph could not be loaded")
            self._channel.send(Prepared(str(exc) or repr(exc), is_out_of_memory(exc)))
        else:
            self._channel.send(Prepared())

    # --- what the step loop tells, from its thread -----------------------------------------------

    def told(self, news: News) -> None:
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
            self._jobs.pop(_number(finished.job), None)

    def ended(self, failed: bool) -> None:
        """Pass on that nothing will follow."""
        self._channel.send(Ended(failed))


def _number(job: Job) -> int:
    assert isinstance(job.reply, _Number)
    return job.reply.value


def main(descriptor: int) -> None:
    """Open the model that the server names, and run it until the server closes the socket."""
    # It is for the server to say when: Ctrl-C at a terminal goes to both, and calls in progress
    # are to be answered first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    channel = _Channel(socket.socket(fileno=descriptor))
    messages = channel.messages()
    first = next(messages, None)
    if first is None:
        return
    assert isinstance(first, Open)
    logs.configure(first.log_level, first.log_format)
    try:
        model = first.open_model()
    except StartupError as exc:
        channel.send(NotOpened(str(exc)))
        return
    except Exception:
        logger.exception("the model could not be opened")
        channel.send(NotOpened("the model could not be opened; the log says why"))
        return
    garbage.look_less()
    runner = model.runner
    channel.send(
        Opened(
            limits=runner.limits,
            widest=widest_sequence(runner),
            num_lanes=len(runner.lanes) if isinstance(runner, LanedRunner) else 1,
            cache_bytes=model.cache_bytes,
            can_score=model.scorer is not None,
        )
    )
    _Model(model, channel).serve(messages)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except Exception:
        logger.exception("the model's process failed")
        os._exit(1)
    # Not by returning: a step that hangs would be waited for. Who closed the socket has all it
    # wants.
    os._exit(0)

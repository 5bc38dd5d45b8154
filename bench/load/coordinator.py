"""Runs a load test: starts the generator's processes, collects their reports, stops them."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType

from bench.load.errors import LoadError
from bench.load.plan import LoadPlan
from bench.load.sample import RequestSample, rounded
from bench.load.statistics import Run
from bench.load.worker import Done, Ready, Share, WorkerProgress, run
from model.training.signals import on_stop_signal

INTERRUPTED = "interrupted"
"""The reason of a run that Ctrl-C or SIGTERM ended."""

_START_DELAY_SECONDS = 0.2
_POLL_SECONDS = 0.25
_START_SECONDS = 60.0
_GONE_SECONDS = 5.0
_STOP_SECONDS = 10.0


Observer = Callable[[Run, list[RequestSample], float], bool]
"""Receives the run, the new samples and the seconds since the start; True stops the run."""


class Coordinator:
    """One run of a plan.

    Args:
        observer: function that is called several times a second.
    """

    def __init__(self, plan: LoadPlan, texts: Sequence[str], observer: Observer) -> None:
        self._plan = plan
        self._texts = texts
        self._observer = observer
        self._run = Run(plan, [], [], 0.0)
        self._in_flight: dict[Connection, int] = {}
        self._last_sign_of_life = 0.0
        self._interrupted = False
        self._worker_died = False

    def run(self, on_start: Callable[[float], None] = lambda start: None) -> Run:
        """Run to the end, or until the observer, Ctrl-C or a dead server ends it.

        Args:
            on_start: receives the begin of the run, in `time.monotonic` seconds.

        Raises:
            ServerError: no server answers.
            LoadError: a process of the generator did not start.
        """
        context = multiprocessing.get_context("spawn")
        processes: list[BaseProcess] = []
        connections: list[Connection] = []
        try:
            for index in range(self._plan.processes):
                ours, theirs = context.Pipe()
                share = Share(self._plan, self._texts, index, self._plan.processes)
                process: BaseProcess = context.Process(
                    target=run, args=(theirs, share), daemon=True
                )
                process.start()
                theirs.close()
                processes.append(process)
                connections.append(ours)
            self._await_ready(connections)
            start = time.monotonic() + _START_DELAY_SECONDS
            on_start(start)
            for connection in connections:
                connection.send(start)
            with on_stop_signal(self._note):
                self._collect(connections, start)
            # Also if the run was over anyway: more runs may follow.
            if self._interrupted:
                self._run.broken_off = INTERRUPTED
        finally:
            for connection in connections:
                connection.close()
            for process in processes:
                process.join(_STOP_SECONDS)
                if process.is_alive():
                    process.terminate()
        return self._run

    def _await_ready(self, connections: list[Connection]) -> None:
        for connection in connections:
            if not connection.poll(_START_SECONDS):
                raise LoadError("a process of the load generator did not start")
            try:
                message = connection.recv()
            except EOFError:
                raise LoadError("a process of the load generator died at its start") from None
            assert isinstance(message, Ready), "a worker's first message says that it is ready"
            if message.error is not None:
                raise message.error

    def _collect(self, connections: list[Connection], start: float) -> None:
        alive = list(connections)
        stopped_at: float | None = None
        while alive:
            new = self._take(alive)
            now = time.monotonic() - start
            reason = self._reason_to_stop(new, now) or (INTERRUPTED if self._interrupted else "")
            if reason and stopped_at is None:
                stopped_at = now
                self._run.broken_off = reason
                _stop(alive)
            elif stopped_at is not None and now > stopped_at + _STOP_SECONDS:
                break
        planned = self._plan.total_seconds
        self._run.seconds = planned if stopped_at is None else min(planned, stopped_at)

    def _take(self, alive: list[Connection]) -> list[RequestSample]:
        """Wait briefly for messages and take them in; the new samples."""
        new: list[RequestSample] = []
        for ready in wait(alive, _POLL_SECONDS):
            assert isinstance(ready, Connection)
            try:
                message = ready.recv()
            except (EOFError, ConnectionResetError):
                alive.remove(ready)
                self._worker_died = True
                continue
            if isinstance(message, Done):
                self._run.cpu_seconds += message.cpu_seconds
                alive.remove(ready)
                continue
            assert isinstance(message, WorkerProgress)
            new += [rounded(sample) for sample in message.samples]
            self._run.lags += [round(lag, 6) for lag in message.lags]
            self._in_flight[ready] = message.num_in_flight
        self._run.samples += new
        self._run.num_in_flight = sum(self._in_flight.values())
        return new

    def _reason_to_stop(self, new: list[RequestSample], now: float) -> str:
        """The reason to stop; "" to continue."""
        if self._observer(self._run, new, now):
            return "stopped"
        if self._worker_died:
            return "a process of the load generator died"
        for sample in new:
            if sample.reply.code != "UNAVAILABLE":
                self._last_sign_of_life = max(self._last_sign_of_life, sample.ended)
        if new and new[-1].ended > self._last_sign_of_life + _GONE_SECONDS:
            return f"the server is gone: {_GONE_SECONDS:g} seconds of nothing but UNAVAILABLE"
        return ""

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Note a signal, to act on it between two messages, never inside one."""
        self._interrupted = True


def _stop(alive: list[Connection]) -> None:
    for connection in alive:
        with contextlib.suppress(OSError):  # it has ended by itself
            connection.send("stop")

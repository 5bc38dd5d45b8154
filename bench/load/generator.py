"""The open and the closed loop. Their only clock is the event loop's, so tests control time."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from bench.load.sample import UNFINISHED, ReplySample, RequestSample

FAILURE_PAUSE_SECONDS = 0.1
"""Pause of a closed loop's user after an error: a dead server answers in no time, and
thousands of refusals a second would say nothing."""

HEARTBEAT_SECONDS = 0.02


class RequestSender(Protocol):
    """Sends texts and waits for the answer. Errors are replies; only cancellation raises."""

    async def __call__(self, texts: Sequence[str]) -> ReplySample:
        """The reply; its `first` is in the event loop's time."""
        ...


class Generator:
    """Sends requests and records their outcomes.

    Cancelling a loop's task breaks the run off: calls in progress are recorded as UNFINISHED.

    Args:
        record: receives every sample when its request ended.
        start: the beginning of the run, in the event loop's time.
    """

    def __init__(
        self,
        call: RequestSender,
        texts_of: Callable[[int], Sequence[str]],
        record: Callable[[RequestSample], None],
        start: float,
    ) -> None:
        self._call = call
        self._texts_of = texts_of
        self._record = record
        self._start = start
        self._loop = asyncio.get_running_loop()
        self.num_in_flight = 0

    async def open_loop(self, schedule: Iterable[tuple[int, float]]) -> None:
        """Send every request at its time, whether or not earlier ones were answered.

        Args:
            schedule: numbers of requests, and seconds from the start; ascending.
        """
        async with asyncio.TaskGroup() as group:
            for number, scheduled in schedule:
                # Even when late: the loop needs a turn for the requests that were begun.
                await asyncio.sleep(max(0.0, self._start + scheduled - self._loop.time()))
                group.create_task(self._send(number, scheduled))

    async def closed_loop(self, num_users: int, seconds: float, numbers: Iterator[int]) -> None:
        """Run users; each sends the next request when its last one was answered.

        Args:
            seconds: time from the start, after which no request begins.
        """
        await asyncio.sleep(max(0.0, self._start - self._loop.time()))
        async with asyncio.TaskGroup() as group:
            for _ in range(num_users):
                group.create_task(self._user(seconds, numbers))

    async def _user(self, seconds: float, numbers: Iterator[int]) -> None:
        while self._now() < seconds:
            sample = await self._send(next(numbers), None)
            if sample.failed:
                await asyncio.sleep(FAILURE_PAUSE_SECONDS)

    async def _send(self, number: int, scheduled: float | None) -> RequestSample:
        texts = self._texts_of(number)
        sent = self._now()
        self.num_in_flight += 1
        reply = ReplySample(UNFINISHED)
        try:
            reply = await self._call(texts)
        finally:
            self.num_in_flight -= 1
            if reply.first is not None:
                reply = dataclasses.replace(reply, first=reply.first - self._start)
            sample = RequestSample(
                number=number,
                scheduled=sent if scheduled is None else scheduled,
                sent=sent,
                ended=self._now(),
                reply=reply,
            )
            self._record(sample)
        return sample

    def _now(self) -> float:
        return self._loop.time() - self._start


async def heartbeat(record: Callable[[float], None]) -> None:
    """Record the lag of the event loop's wake-ups, in seconds, until cancelled.

    An answer that arrives while the loop is busy is seen as late, and its latency is then the
    generator's, not the server's.
    """
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        due = max(due, loop.time()) + HEARTBEAT_SECONDS
        await asyncio.sleep(due - loop.time())
        record(max(0.0, loop.time() - due))

"""Equal requests at the same time: one is computed, the others follow it.

A follower holds no rows and no quota. It has its own deadline. If the request that it follows is
cancelled or fails, the first follower is computed in its place, in its own call.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Sequence

from service.batching.records import EngineRequest
from service.cache.values import is_complete
from service.domain.requests import FinishReason, GenerationRequest, GenerationResult
from service.engine.generation import Generation
from service.errors import (
    DeadlineExceededError,
    DragomanError,
    InternalError,
    RequestCancelledError,
)

# Submits a request to the engine, when its call has room for it.
Submit = Callable[[GenerationRequest], Awaitable[Generation]]

# Followers that are answered without a pause: a millisecond.
_TOGETHER = 64

_log = logging.getLogger("dragoman.cache")


class Flight:
    """A request that is being computed, and its followers.

    Args:
        on_landed: called once, with the result, or with None if nobody is left to compute it.
    """

    def __init__(self, on_landed: Callable[[GenerationResult | None], None]) -> None:
        self._on_landed = on_landed
        self._followers: dict[Follower, None] = {}

    def lead(self, generation: Generation) -> None:
        """Give the result of this generation to all followers."""
        generation.call_at_end(self._ended)

    def join(self, follower: Follower) -> None:
        """Add a follower."""
        self._followers[follower] = None

    def leave(self, follower: Follower) -> None:
        """Remove a follower, if it is one."""
        self._followers.pop(follower, None)

    def pass_on(self) -> None:
        """Let the first follower be computed, since the request that it follows has no result."""
        if not self._followers:
            self._on_landed(None)
            return
        first = next(iter(self._followers))
        self.leave(first)
        first.take_over()

    def _ended(self, generation: Generation) -> None:
        result = generation.ended_as
        assert result is not None, "called at the end"
        if not is_complete(result):
            self.pass_on()
            return
        followers, self._followers = list(self._followers), {}
        self._on_landed(result)
        _answer(followers, result)


def _answer(followers: Sequence[Follower], result: GenerationResult) -> None:
    """Answer some followers now, and the others when the event loop has done something else."""
    for follower in followers[:_TOGETHER]:
        follower.answer(result)
    if rest := followers[_TOGETHER:]:
        asyncio.get_running_loop().call_soon(_answer, rest, result)


class Follower:
    """A request with the result of an equal one.

    Args:
        request: the request.
        flight: flight of the equal request.
        submit: submits it to the engine, if it has to take over.
        now: the engine's clock, which deadlines are compared with.

    Attributes:
        generation: its reply channel.
    """

    def __init__(
        self, request: GenerationRequest, flight: Flight, submit: Submit, now: Callable[[], float]
    ) -> None:
        self.generation = Generation(EngineRequest(0, request, 0, now()), self, lambda _: None)
        self._request = request
        self._flight = flight
        self._submit = submit
        self._now = now
        self._context = contextvars.copy_context()  # of its own call, for logs and traces
        self._task: asyncio.Task[None] | None = None
        self._computed: Generation | None = None
        self._timer: asyncio.TimerHandle | None = None
        if request.deadline is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, request.deadline - now()), self._expire)
        flight.join(self)

    def stream(self, request_id: int) -> None:
        """Do nothing: the tokens of a follower come together, at the end."""

    def cancel(self, request_id: int, error: DragomanError) -> None:
        """End now; called by its generation."""
        if self._computed is not None:
            self._computed.cancel(error)
        elif self._task is not None:
            self._task.cancel()
        else:
            self._end_with(error)

    def answer(self, result: GenerationResult) -> None:
        """End with the result of an equal request, unless it was cancelled meanwhile."""
        if self.generation.ended_as is not None:
            return
        self._stop_timer()
        self.generation.is_cached = True
        waited = self._now() - self.generation.submitted_at
        self.generation.finish(without_work(result, waited))

    def take_over(self) -> None:
        """Submit the request to the engine, and lead the other followers."""
        self._stop_timer()
        self._task = asyncio.create_task(
            self._compute(), name="cache follower", context=self._context
        )
        self._task.add_done_callback(self._submitted)

    async def _compute(self) -> None:
        self._computed = await self._submit(self._request)

    def _submitted(self, task: asyncio.Task[None]) -> None:
        """Lead, or let the next follower try if the engine does not take this one."""
        if (computed := self._computed) is not None:
            self._flight.lead(computed)
            computed.call_at_end(self._finish)
            return
        error = RequestCancelledError("cancelled") if task.cancelled() else task.exception()
        if not isinstance(error, DragomanError):
            _log.error("a request could not be submitted", exc_info=error)
            error = InternalError("a request could not be submitted")
        self._end_with(error)
        self._flight.pass_on()

    def _finish(self, computed: Generation) -> None:
        result = computed.ended_as
        assert result is not None, "called at the end"
        waited = computed.submitted_at - self.generation.submitted_at
        queue_seconds = waited + result.queue_seconds
        self.generation.finish(dataclasses.replace(result, queue_seconds=queue_seconds))

    def _expire(self) -> None:
        error = DeadlineExceededError("the deadline passed while it waited for an equal sentence")
        self._end_with(error, FinishReason.DEADLINE)

    def _end_with(
        self, error: DragomanError, reason: FinishReason = FinishReason.CANCELLED
    ) -> None:
        self._stop_timer()
        self._flight.leave(self)
        self.generation.finish(GenerationResult([], reason, was_admitted=False, error=error))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def without_work(result: GenerationResult, seconds: float = 0.0) -> GenerationResult:
    """A result for a request that the model did not compute, and that waited some seconds."""
    return dataclasses.replace(
        result,
        queue_seconds=seconds,
        compute_seconds=0.0,
        first_token_seconds=seconds,
        encoded_seconds=None,
        encode_seconds=0.0,
        num_steps=0,
    )

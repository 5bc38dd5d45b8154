"""One request's reply channel: its tokens as they come, and its result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from service.batching.records import EngineRequest
from service.domain.requests import GenerationRequest, GenerationResult
from service.errors import DragomanError, RequestCancelledError
from service.observability import tracing


class RequestControl(Protocol):
    """The methods of an engine that a generation calls."""

    def stream(self, request_id: int) -> None:
        """Push the tokens that the request has, and each new one."""
        ...

    def cancel(self, request_id: int, error: DragomanError) -> None:
        """Drop the request before the next step."""
        ...


class Generation:
    """A request that the engine has accepted.

    Iterate over it for new tokens as they are generated (never EOS; the tokens of a beam come at
    its end), await `result`, or both. Call `cancel` when the answer is no longer wanted: otherwise
    the generation runs to its end.

    Attributes:
        submitted: the request as submitted to the scheduler.
        trace_ids: trace ids of the call that it belongs to; None if that is not traced.
        is_cached: whether its result is of an equal request, and no model computed it.
    """

    def __init__(
        self,
        submitted: EngineRequest,
        control: RequestControl,
        on_end: Callable[[Generation], None],
    ) -> None:
        self.submitted = submitted
        trace = tracing.current.get()
        self.trace_ids = None if trace is None else trace.ids
        self.is_cached = False
        self._control = control
        self._at_end = [on_end]
        self._result: GenerationResult | None = None
        self._tokens: list[int] = []
        self._num_pushed = 0
        self._streams = False
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def request(self) -> GenerationRequest:
        """The request."""
        return self.submitted.request

    @property
    def submitted_at(self) -> float:
        """Time of submission, in seconds of the engine's clock."""
        return self.submitted.submitted_at

    @property
    def ended_as(self) -> GenerationResult | None:
        """The result; None until the generation has ended."""
        return self._result

    async def result(self) -> GenerationResult:
        """Wait for the result. A failure is in its `finish_reason` and `error`, not raised.

        Cancelling the waiting task does not cancel the generation.
        """
        while self._result is None:
            await self._change()
        return self._result

    async def __aiter__(self) -> AsyncIterator[list[int]]:
        # The tokens of a beam are not known before its end.
        is_greedy = self.request.options.beam_size == 1
        if self._result is None and is_greedy and not self._streams:
            self._streams = True
            self._control.stream(self.submitted.id)
        while True:
            if self._tokens:
                tokens, self._tokens = self._tokens, []
                yield tokens
            elif self._result is not None:
                return
            else:
                await self._change()

    def cancel(self, error: DragomanError | None = None) -> None:
        """End the generation before the next step. Does nothing once it has ended.

        Args:
            error: error of the result; None for a RequestCancelledError.
        """
        if self._result is None:
            self._control.cancel(self.submitted.id, error or RequestCancelledError("cancelled"))

    def call_at_end(self, callback: Callable[[Generation], None]) -> None:
        """Call a function once the generation, which is unfinished, has its result."""
        assert self._result is None, "it has ended"
        self._at_end.append(callback)

    def push(self, token_ids: list[int]) -> None:
        """Add new tokens; called by the engine only."""
        if token_ids:
            self._tokens += token_ids
            self._num_pushed += len(token_ids)
            self._wake()

    def finish(self, result: GenerationResult) -> None:
        """Set the result, once; called by the engine only. Tokens not pushed yet are added."""
        assert self._result is None, "a request was answered twice"
        self._result = result
        self._tokens += result.token_ids[self._num_pushed :]
        for callback in self._at_end:
            callback(self)
        self._wake()

    async def _change(self) -> None:
        # A future for each waiter: cancelling one must not cancel the others.
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

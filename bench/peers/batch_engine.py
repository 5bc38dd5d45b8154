"""Request-level batching: collect, run a batch to its end, collect again.

Dynamic batching, as servers around a batch translation library do it. It stands where
`service.engine.engine.Engine` stands, under the same translator and gRPC server, so that only the
engines differ.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from model.bundle.limits import default_max_new_tokens
from service.batching.events import Iteration
from service.batching.records import EngineRequest
from service.domain.plan import RunnerLimits
from service.domain.requests import FinishReason, GenerationRequest, GenerationResult
from service.engine.generation import Generation
from service.engine.interface import EngineObserver
from service.engine.latency_model import CompletionEstimate
from service.engine.quota import AdmittedCall, Quota
from service.errors import (
    DeadlineExceededError,
    DragomanError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Output:
    """The result for one sequence: its tokens without EOS, and whether the model ended it."""

    token_ids: list[int]
    ended: bool


class BatchBackend(Protocol):
    """Translates batches."""

    async def start(self) -> None:
        """Prepare for translations."""
        ...

    async def translate(
        self, requests: Sequence[GenerationRequest], max_new_tokens: Sequence[int]
    ) -> list[Output]:
        """One output for each request. Several batches may be in progress."""
        ...

    async def stop(self) -> None:
        """Free what it holds; nothing is in progress."""
        ...


@dataclass(frozen=True)
class BatchPolicy:
    """The size of batches, and how long they wait to be filled.

    Attributes:
        max_batch: most sequences in a batch.
        window_seconds: time that a sequence waits for others while a worker is free.
        num_workers: batches in progress at the same time.
        max_waiting: sequences that may wait; more are refused.
    """

    max_batch: int = 32
    window_seconds: float = 0.002
    num_workers: int = 1
    max_waiting: int = 4096


@dataclass(eq=False)
class _Sequence:
    """A sequence inside the engine.

    Attributes:
        generation: its reply channel.
        admitted_at: time at which its batch began; None while it waits.
        cancelled: reason of its cancellation.
    """

    generation: Generation
    admitted_at: float | None = None
    cancelled: DragomanError | None = None

    @property
    def request(self) -> GenerationRequest:
        """The request."""
        return self.generation.request


class BatchEngine:
    """A `ServableEngine` that runs batch after batch.

    Args:
        observer: as of a real engine; a "step" is a whole batch.
    """

    def __init__(
        self,
        backend: BatchBackend,
        policy: BatchPolicy,
        limits: RunnerLimits,
        observer: EngineObserver | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._backend = backend
        self._policy = policy
        self._observer = observer or EngineObserver()
        self._clock = clock
        in_work = policy.max_batch * policy.num_workers
        self._places = Quota(in_work + policy.max_waiting, policy.max_waiting // 2)
        self._inside: dict[int, _Sequence] = {}  # by id
        self._waiting: dict[_Sequence, None] = {}
        self._last_id = 0
        self._num_running = 0
        self._num_batches = 0
        self._arrived = asyncio.Event()
        self._workers: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()

    @property
    def limits(self) -> RunnerLimits:
        """The model's limits."""
        return self._limits

    @property
    def widest(self) -> RunnerLimits:
        """Limits of a single sequence."""
        return self._limits

    @property
    def has_failed(self) -> bool:
        """Return False: a failed batch affects no other one."""
        return False

    @property
    def can_score(self) -> bool:
        """Return False: peers only translate."""
        return False

    async def prepare_scoring(self, graph: str = "scoring") -> None:
        """Fail: peers only translate.

        Raises:
            FailedPreconditionError: always.
        """
        raise FailedPreconditionError("this engine only translates")

    def now(self) -> float:
        """The time on its clock, in seconds."""
        return self._clock()

    async def start(self) -> None:
        """Begin to serve."""
        await self._backend.start()
        self._workers = [
            asyncio.create_task(self._work(), name=f"batch worker {number}")
            for number in range(self._policy.num_workers)
        ]

    async def stop(self) -> None:
        """End what waits, let running batches end, free the backend."""
        workers, self._workers = self._workers, []
        self._arrived.set()
        for sequence in list(self._waiting):
            error = UnavailableError("the engine has stopped")
            self._end(sequence, FinishReason.CANCELLED, error)
        await asyncio.gather(*workers)
        await self._backend.stop()
        self._ended.set()

    def pulse(self) -> None:
        """Return None: a peer has no watchdog."""

    def abandon(self) -> None:
        """Do nothing: a peer has no watchdog."""

    async def wait_until_ended(self) -> bool:
        """Wait until `stop` is done; returns False, since the engine does not fail."""
        await self._ended.wait()
        return False

    def estimate(self, request: GenerationRequest) -> None:
        """Return None: a peer refuses no request because of its deadline."""

    def check_room(self, first: GenerationRequest) -> None:
        """Do nothing: a peer refuses requests in `admit` only."""

    def admit(
        self,
        max_in_flight: int,
        first: GenerationRequest | None = None,
        before: CompletionEstimate | None = None,
    ) -> AdmittedCall:
        """Let a call in, as `Engine.admit`.

        Raises:
            ResourceExhaustedError: no place is free.
            UnavailableError: it does not serve.
        """
        if not self._workers:
            raise UnavailableError("the engine does not serve")
        if not self._places.take(1):
            raise ResourceExhaustedError(
                f"{self._places.num_taken} sequences wait or run, which is the limit", 1.0
            )
        return AdmittedCall(self._places, max_in_flight, self._enqueue)

    # --- what generations ask --------------------------------------------------------------------

    def stream(self, request_id: int) -> None:
        """Do nothing: a batch has no tokens before its end."""

    def cancel(self, request_id: int, error: DragomanError) -> None:
        """Drop the request if it still waits; a batch in progress can't be left."""
        sequence = self._inside[request_id]
        if sequence in self._waiting:
            self._end(sequence, FinishReason.CANCELLED, error)
        else:
            sequence.cancelled = error

    # --- inside ----------------------------------------------------------------------------------

    def _enqueue(
        self, request: GenerationRequest, on_end: Callable[[Generation], None]
    ) -> Generation:
        num_source = len(request.source_ids)
        if not 1 <= num_source <= self._limits.max_source_positions:
            raise InvalidArgumentError("source_ids", f"{num_source} tokens are too many")
        wanted = request.options.max_new_tokens
        default = default_max_new_tokens(num_source, self._limits.max_target_positions)
        self._last_id += 1
        max_new_tokens = default if wanted is None else wanted
        submitted = EngineRequest(self._last_id, request, max_new_tokens, self._clock())
        generation = Generation(submitted, self, on_end)
        sequence = self._inside[submitted.id] = _Sequence(generation)
        self._waiting[sequence] = None
        self._arrived.set()
        self._report()
        return generation

    async def _work(self) -> None:
        """One worker: batch after batch."""
        while self._workers:
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            await self._wait_for_company()
            batch = self._take_batch()
            if batch:
                self._arrived.set()  # for the workers that may take the rest
                self._num_batches += 1
                self._num_running += len(batch)
                await self._run(batch)
                self._num_running -= len(batch)
                self._num_batches -= 1
                self._report()

    async def _wait_for_company(self) -> None:
        """Wait until the batch is full, or the oldest sequence has waited for the window."""
        while 0 < len(self._waiting) < self._policy.max_batch:
            oldest = next(iter(self._waiting))
            left = oldest.generation.submitted_at + self._policy.window_seconds - self._clock()
            if left <= 0:
                return
            self._arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                return

    def _take_batch(self) -> list[_Sequence]:
        now = self._clock()
        for sequence in list(self._waiting):
            deadline = sequence.request.deadline
            if deadline is not None and deadline <= now:
                error = DeadlineExceededError("the deadline passed while it waited")
                self._end(sequence, FinishReason.DEADLINE, error)
        waiting = list(self._waiting)
        # Free workers share the requests that wait: two half batches at once end sooner than one.
        num_free = self._policy.num_workers - self._num_batches
        batch = waiting[: min(self._policy.max_batch, -(-len(waiting) // num_free))]
        for sequence in batch:
            del self._waiting[sequence]
            sequence.admitted_at = now
        return batch

    async def _run(self, batch: list[_Sequence]) -> None:
        started = self._clock()
        try:
            outputs = await self._backend.translate(
                [one.request for one in batch],
                [one.generation.submitted.max_new_tokens for one in batch],
            )
        except Exception:
            logger.exception("a batch failed")
            for sequence in batch:
                self._end(sequence, FinishReason.ERROR, InternalError("the batch failed"))
            return
        seconds = self._clock() - started
        self._report(num_rows=len(batch), num_encodes=len(batch), step_seconds=seconds)
        for sequence, output in zip(batch, outputs, strict=True):
            if sequence.cancelled is not None:
                self._end(sequence, FinishReason.CANCELLED, sequence.cancelled, output)
            else:
                reason = FinishReason.EOS if output.ended else FinishReason.LENGTH
                self._end(sequence, reason, None, output)

    def _end(
        self,
        sequence: _Sequence,
        reason: FinishReason,
        error: DragomanError | None,
        output: Output | None = None,
    ) -> None:
        self._waiting.pop(sequence, None)
        del self._inside[sequence.generation.submitted.id]
        now, submitted_at = self._clock(), sequence.generation.submitted_at
        admitted = now if sequence.admitted_at is None else sequence.admitted_at
        first = None if output is None else now - submitted_at
        result = GenerationResult(
            token_ids=[] if output is None else output.token_ids,
            finish_reason=reason,
            queue_seconds=admitted - submitted_at,
            compute_seconds=now - admitted,
            first_token_seconds=first,
            error=error,
        )
        self._observer.on_finished(result, sequence.request)
        sequence.generation.finish(result)

    def _report(self, **figures: Any) -> None:
        iteration = Iteration(len(self._waiting), self._num_running, **figures)
        self._observer.on_iterations([iteration])

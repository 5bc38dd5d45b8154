"""Request-level batching: collect, run a batch to its end, collect again.

What servers around a library that translates batches do ("dynamic batching"). It stands where
`service.engine.engine.Engine` stands, under the same translator and gRPC server, so that only the
engines differ.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from model.limits import default_max_new_tokens
from service.batching.jobs import Job
from service.decoding.requests import FinishReason, GenerationRequest, GenerationResult
from service.engine.generation import Generation
from service.engine.observer import EngineObserver, SilentObserver
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
from service.runtime.plan import RunnerLimits

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Output:
    """The result for one sequence: its tokens without EOS, and whether the model ended it."""

    token_ids: list[int]
    ended: bool


class Backend(Protocol):
    """Translates batches."""

    async def start(self) -> None:
        """Get ready."""
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
        window_seconds: how long a sequence waits for company while a worker is free.
        num_workers: batches in progress at the same time.
        per_request: a batch holds the sequences of one request only.
        max_waiting: sequences that may wait; more are refused.
    """

    max_batch: int = 32
    window_seconds: float = 0.002
    num_workers: int = 1
    per_request: bool = False
    max_waiting: int = 4096


class BatchEngine:
    """A `ServableEngine` that runs batch after batch.

    Args:
        backend: translates batches.
        policy: how they are made.
        limits: what the model can take.
        observer: as of a real engine; a "step" is a whole batch.
    """

    def __init__(
        self,
        backend: Backend,
        policy: BatchPolicy,
        limits: RunnerLimits,
        observer: EngineObserver | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._backend = backend
        self._policy = policy
        self._observer: EngineObserver = observer or SilentObserver()
        self._clock = clock
        in_work = policy.max_batch * policy.num_workers
        self._places = Quota(in_work + policy.max_waiting, policy.max_waiting // 2)
        self._waiting: dict[Job, None] = {}
        self._num_running = 0
        self._num_batches = 0
        self._arrived = asyncio.Event()
        self._workers: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()

    @property
    def limits(self) -> RunnerLimits:
        """What the model can take."""
        return self._limits

    @property
    def widest(self) -> RunnerLimits:
        """The same for a single sequence."""
        return self._limits

    @property
    def has_failed(self) -> bool:
        """Never: a batch that fails fails alone."""
        return False

    @property
    def can_score(self) -> bool:
        """Peers only translate."""
        return False

    async def prepare_scoring(self) -> None:
        """Refuse.

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
        for job in list(self._waiting):
            self._end(job, FinishReason.CANCELLED, UnavailableError("the engine has stopped"))
        await asyncio.gather(*workers)
        await self._backend.stop()
        self._ended.set()

    def pulse(self) -> None:
        """Nothing: a peer is not watched."""

    def abandon(self) -> None:
        """Nothing: it is not watched."""

    async def wait_until_ended(self) -> bool:
        """Wait until `stop` is done; False, as it does not fail."""
        await self._ended.wait()
        return False

    def admit(self, max_in_flight: int, first: GenerationRequest | None = None) -> AdmittedCall:
        """Let a call in, as `Engine.admit`.

        Raises:
            ResourceExhaustedError: there is not a single place.
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

    def stream(self, job: Job) -> None:
        """A batch has nothing to give before its end."""

    def cancel(self, job: Job, error: DragomanError) -> None:
        """Drop the job if it still waits; a batch in progress can't be left."""
        if job in self._waiting:
            self._end(job, FinishReason.CANCELLED, error)
        else:
            job.cancelled = error

    # --- inside ----------------------------------------------------------------------------------

    def _enqueue(
        self, request: GenerationRequest, on_end: Callable[[Generation], None]
    ) -> Generation:
        num_source = len(request.source_ids)
        if not 1 <= num_source <= self._limits.max_source_positions:
            raise InvalidArgumentError("source_ids", f"{num_source} tokens are too many")
        wanted = request.options.max_new_tokens
        default = default_max_new_tokens(num_source, self._limits.max_target_positions)
        generation = Generation(
            request,
            max_new_tokens=default if wanted is None else wanted,
            submitted_at=self._clock(),
            control=self,
            on_end=on_end,
        )
        self._waiting[generation.job] = None
        self._arrived.set()
        self._tell_queue()
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
                self._tell_queue()

    async def _wait_for_company(self) -> None:
        """Until the batch is full or the oldest has waited long enough."""
        while 0 < len(self._waiting) < self._policy.max_batch:
            oldest = next(iter(self._waiting))
            left = oldest.submitted_at + self._policy.window_seconds - self._clock()
            if left <= 0:
                return
            self._arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                return

    def _take_batch(self) -> list[Job]:
        now = self._clock()
        for job in [job for job in self._waiting if job.deadline <= now]:
            error = DeadlineExceededError("the deadline passed while it waited")
            self._end(job, FinishReason.DEADLINE, error)
        jobs = list(self._waiting)
        if self._policy.per_request and jobs:
            first = jobs[0].request.request_id
            jobs = [job for job in jobs if job.request.request_id == first]
        # Workers that are free share what there is: two half batches at once end sooner than one.
        num_free = self._policy.num_workers - self._num_batches
        batch = jobs[: min(self._policy.max_batch, -(-len(jobs) // num_free))]
        for job in batch:
            del self._waiting[job]
            job.admitted_at = now
            self._observer.on_admitted(now - job.submitted_at)
        return batch

    async def _run(self, batch: list[Job]) -> None:
        self._tell_queue()
        started = self._clock()
        try:
            outputs = await self._backend.translate(
                [job.request for job in batch], [job.max_new_tokens for job in batch]
            )
        except Exception:
            logger.exception("a batch failed")
            for job in batch:
                self._end(job, FinishReason.ERROR, InternalError("the batch failed"))
            return
        self._observer.on_step(len(batch), len(batch), 0.0, self._clock() - started)
        for job, output in zip(batch, outputs, strict=True):
            if job.cancelled is not None:
                self._end(job, FinishReason.CANCELLED, job.cancelled, output)
            else:
                reason = FinishReason.EOS if output.ended else FinishReason.LENGTH
                self._end(job, reason, None, output)

    def _end(
        self,
        job: Job,
        reason: FinishReason,
        error: DragomanError | None,
        output: Output | None = None,
    ) -> None:
        self._waiting.pop(job, None)
        now = self._clock()
        admitted = now if job.admitted_at is None else job.admitted_at
        first = None if output is None else now - job.submitted_at
        if first is not None:
            self._observer.on_first_token(first)
        result = GenerationResult(
            token_ids=[] if output is None else output.token_ids,
            finish_reason=reason,
            queue_seconds=admitted - job.submitted_at,
            compute_seconds=now - admitted,
            first_token_seconds=first,
            error=error,
        )
        self._observer.on_finished(result, job.request)
        job.reply.finish(result)

    def _tell_queue(self) -> None:
        self._observer.on_queue(len(self._waiting), self._num_running)

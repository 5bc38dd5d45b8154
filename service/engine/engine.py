"""The engine: requests in, generations out, and a visible life cycle.

The engine belongs to the event loop. The step loop does the work, on a thread or in a process of
its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

from service.batching.config import EngineConfig
from service.batching.events import Events
from service.batching.hosted_model import HostedModel, InProcessModel
from service.batching.records import EngineRequest, Finished
from service.batching.step_loop import MAX_UNREPORTED
from service.domain.plan import LanedRunner, ModelRunner, Scorer
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    ScoringRequest,
)
from service.engine.admission import AdmissionController
from service.engine.generation import Generation
from service.engine.interface import EngineObserver, EngineProgress
from service.engine.latency_model import CompletionEstimate
from service.engine.quota import AdmittedCall
from service.engine.request_limits import check_fits, max_new_tokens
from service.engine.scoring_preparation import ScoringPreparation
from service.errors import (
    DragomanError,
    FailedPreconditionError,
    UnavailableError,
)

__all__ = ["Engine", "EngineConfig"]

logger = logging.getLogger(__name__)


class _State(enum.Enum):
    NEW = "has not started"
    SERVING = "serves"
    DRAINING = "is shutting down"
    STOPPED = "has stopped"
    FAILED = "has failed"


class Engine:
    """Generates for many requests at once on one runner.

    All methods belong to the event loop that called `start`.

    Args:
        model: the open model. The engine owns it, and `stop` closes it.
        config: limits and special ids.
        observer: receives the engine's events, for metrics.
        clock: returns the time in seconds, by which deadlines are measured. It is called from two
            threads. With processes, it must be `time.monotonic`.
    """

    def __init__(
        self,
        model: HostedModel,
        config: EngineConfig | None = None,
        observer: EngineObserver | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config or EngineConfig()
        self.limits, self.widest = model.limits, model.widest
        self._observer = observer or EngineObserver()
        self._clock = clock
        self._steps = model.steps(self.config, self)
        # By graph; empty if the model can't score.
        self._scoring: dict[str, ScoringPreparation] = {}
        if model.can_score:
            for graph in ("scoring", "attention"):
                prepare = self._steps.prepare_scoring
                self._scoring[graph] = ScoringPreparation(prepare, graph, clock)
        self._admission = AdmissionController(
            self.limits.max_rows,
            self.config.max_waiting,
            self.config.max_queue_seconds,
            clock,
            on_held_back=self._observer.on_held_back,
            on_refused=self._observer.on_refused,
            pauses_rows=self.limits.max_paused_rows > 0,
        )
        self._generations: dict[int, Generation] = {}  # by id
        self._last_id = 0
        self._state = _State.NEW
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._ended = asyncio.Event()
        self._num_reports = 0

    @classmethod
    def of_runner(
        cls,
        runner: ModelRunner | LanedRunner,
        config: EngineConfig | None = None,
        observer: EngineObserver | None = None,
        scorer: Scorer | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> Self:
        """An engine whose steps run in this process; arguments as in `InProcessModel`."""
        return cls(InProcessModel(runner, scorer, clock), config, observer, clock=clock)

    @property
    def is_serving(self) -> bool:
        """Whether it accepts new requests."""
        return self._state is _State.SERVING

    def now(self) -> float:
        """The time on the engine's clock, in seconds."""
        return self._clock()

    @property
    def can_score(self) -> bool:
        """Whether the model can score."""
        return bool(self._scoring)

    async def prepare_scoring(self, graph: str = "scoring") -> None:
        """Load a scoring graph while steps run; required before the first scoring request.

        Args:
            graph: "scoring" or, for requests that select attention weights, "attention".

        Raises:
            FailedPreconditionError: the model can't score.
            UnavailableError: loading failed, now or within the last minute, and the log says why;
                or the graph is not loaded and the engine does not serve.
            ResourceExhaustedError: memory ran out during loading, now or within the last minute.
        """
        if not self._scoring:
            raise FailedPreconditionError(
                "this model was exported without a scoring graph: export its checkpoint again "
                "(`dragoman export`) to score translations or align them"
            )
        if not self._scoring[graph].is_done:
            self._check_serving()
        await self._scoring[graph].wait()

    async def start(self) -> None:
        """Start the step loop and accept requests."""
        assert self._state is _State.NEW, "an engine starts once"
        self._start_steps()
        self._state = _State.SERVING

    def _start_steps(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._steps.start()

    async def drain(self, timeout_seconds: float) -> bool:
        """Refuse new calls and wait until those inside are answered.

        Returns:
            Whether all calls were answered within the timeout.
        """
        if self._state is _State.SERVING:
            self._state = _State.DRAINING
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._admission.wait_until_empty()
        except TimeoutError:
            return False
        return True

    @property
    def has_failed(self) -> bool:
        """Whether the engine ended by itself, or did not end when it was stopped."""
        return self._state is _State.FAILED

    async def stop(self, timeout_seconds: float = 5.0) -> None:
        """End the remaining requests once the step in flight has ended, and close the runner.

        A step that takes longer than `timeout_seconds` counts as hung. It is abandoned together
        with its runner, everything else ends, and the engine counts as failed. Without a step, the
        runner ended late, as on a busy machine: it is abandoned as well, which is no failure.
        """
        if self._state is _State.NEW:  # its thread runs just long enough to close the runner
            self._start_steps()
        if self._state not in (_State.STOPPED, _State.FAILED):
            self._state = _State.STOPPED
            self._steps.stop()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._ended.wait()
        except TimeoutError:
            if self._generations:
                logger.error("a step hangs for more than %s seconds; left behind", timeout_seconds)
            self.abandon()
        await asyncio.to_thread(self._steps.join)

    def abandon(self) -> None:
        """Abandon a step that hangs, and its runner. All requests end; the engine has failed.

        An engine without work that is being stopped has not.
        """
        if self._ended.is_set():
            return
        self._steps.abandon()
        self._end(failed=self._state is not _State.STOPPED or bool(self._generations))

    def pulse(self) -> EngineProgress | None:
        """The engine's progress; None while it has no work.

        A request counts as work until the step loop has answered it, even if it was cancelled.
        """
        if not self._generations:
            return None
        return EngineProgress(self._num_reports, self._silence_seconds())

    def _silence_seconds(self) -> float:
        """Longest expected time between two reports: `MAX_UNREPORTED` steps, an encode, a score."""
        num_positions = self.limits.max_source_positions + self.limits.max_target_positions
        return self._admission.expected_seconds(
            MAX_UNREPORTED, num_positions, self.config.step_seconds
        )

    async def wait_until_ended(self) -> bool:
        """Wait until the engine has ended, by `stop` or by itself; returns `has_failed`."""
        await self._ended.wait()
        return self.has_failed

    # --- requests --------------------------------------------------------------------------------

    def estimate(self, request: GenerationRequest) -> CompletionEstimate | None:
        """Estimate the time of a request that arrives now; None while the engine is idle."""
        return self._admission.estimate(request)

    def admit(
        self,
        max_in_flight: int,
        first: GenerationRequest | None = None,
        before: CompletionEstimate | None = None,
    ) -> AdmittedCall:
        """Admit a call with one or more sequences. The caller closes the returned call.

        Args:
            max_in_flight: most sequences of the call inside the engine at a time.
            first: the call's first request; the others have the same client and number of rows.
                None checks only the quota.
            before: estimate for the engine that has to run first; None without one.

        Raises:
            ResourceExhaustedError: the queue is full, or the wait would be too long.
            DeadlineExceededError: the deadline cannot be met.
            UnavailableError: the engine does not serve.
        """
        self._check_serving()
        return self._admission.admit(first, max_in_flight, self._submit_admitted, before)

    def check_room(self, first: GenerationRequest) -> None:
        """Raise what `admit` would raise for a call with this first request."""
        self._check_serving()
        self._admission.check(first)

    def _submit_admitted(
        self, request: GenerationRequest, on_end: Callable[[Generation], None]
    ) -> Generation:
        # Admitted calls are served while the engine drains.
        if self._state not in (_State.SERVING, _State.DRAINING):
            raise UnavailableError(f"the engine {self._state.value}")
        generation = self._generation(request, on_end)
        self._enqueue([generation])
        return generation

    def _check_serving(self) -> None:
        if self._state is not _State.SERVING:
            raise UnavailableError(f"the engine {self._state.value}")

    def _generation(
        self, request: GenerationRequest, on_end: Callable[[Generation], None]
    ) -> Generation:
        def ended(generation: Generation) -> None:
            self._generations.pop(generation.submitted.id, None)
            self._admission.ended(generation.submitted.id)
            on_end(generation)

        if isinstance(request, ScoringRequest):
            graph = "scoring" if request.selection is None else "attention"
            is_prepared = self.can_score and self._scoring[graph].is_done
            assert is_prepared, "a scoring request before prepare_scoring()"
        check_fits(request, self.limits, self.widest)
        self._last_id += 1
        longest = max_new_tokens(request, self.limits)
        submitted = EngineRequest(self._last_id, request, longest, self._clock())
        return Generation(submitted, self, ended)

    def _enqueue(self, generations: Sequence[Generation]) -> None:
        for generation in generations:
            self._generations[generation.submitted.id] = generation
            self._admission.submitted(generation.submitted)
        self._steps.add([generation.submitted for generation in generations])

    # --- what generations ask (generation.RequestControl) ----------------------------------------

    def stream(self, request_id: int) -> None:
        """Push the tokens that the request has, and each new one."""
        self._steps.stream(request_id)

    def cancel(self, request_id: int, error: DragomanError) -> None:
        """Drop the request before the next step."""
        # Requests that arrive before that step don't wait for it.
        self._admission.ended(request_id)
        self._steps.cancel(request_id, error)

    # --- events of the step loop, from any thread (events.Listener) ------------------------------

    def on_events(self, events: Events) -> None:
        """Deliver the events on the event loop."""
        self._on_loop(lambda: self._hand_out(events))

    def on_end(self, failed: bool) -> None:
        """End the engine, on the event loop; no events follow."""
        self._on_loop(lambda: self._end(failed))

    def _on_loop(self, call: Callable[[], None]) -> None:
        assert self._loop is not None
        if threading.get_ident() == self._loop_thread:
            self._loop.call_soon(call)
            return
        # The loop is closed already if it was torn down without stopping the engine.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def _hand_out(self, events: Events) -> None:
        if self._ended.is_set():  # events of an abandoned step: its requests have been answered
            return
        self._num_reports += events.is_progress
        # Answers first, so that an observer that raises cannot prevent one.
        for request_id, token_ids in events.streamed:
            self._generations[request_id].push(token_ids)
        ended = [self._finish(finished) for finished in events.finished]
        if iterations := events.iterations:
            self._admission.iterated(iterations)
            self._observer.on_iterations(iterations)
        for generation, finished in zip(ended, events.finished, strict=True):
            self._observer.on_finished(finished.result, generation.request, generation.trace_ids)

    def _finish(self, finished: Finished) -> Generation:
        generation = self._generations[finished.id]
        self._admission.answered(generation.request, finished.result)
        generation.finish(finished.result)
        return generation

    def _end(self, failed: bool) -> None:
        if failed:
            self._state = _State.FAILED
        error = UnavailableError(f"the engine {self._state.value}")
        for generation in list(self._generations.values()):
            generation.finish(GenerationResult([], FinishReason.CANCELLED, error=error))
        for preparation in self._scoring.values():
            preparation.forget()
        self._ended.set()

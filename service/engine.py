"""The step loop: schedule, execute, update.

The event loop owns the scheduler and every request; a thread of its own runs the model. They hand
each other one plan and one output at a time, so there is nothing to lock.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from model.limits import default_max_new_tokens
from service.admission import Admission, Places
from service.errors import (
    DragomanError,
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from service.generation import Generation
from service.jobs import Job
from service.observer import EngineObserver, SilentObserver
from service.plan import ModelRunner, RunnerLimits, StepOutput
from service.requests import GenerationRequest
from service.scheduler import Finished, Schedule, Scheduler, Update
from service.step_thread import StepThread

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineConfig:
    """What an engine may take on.

    Attributes:
        bos_id, eos_id: the model's ids that begin and end a target.
        max_waiting: sequences that may wait beyond those that the runner has rows for. Half of it
            is kept for calls that newly arrive.
        encode_token_budget: most source tokens to encode in one iteration.
    """

    bos_id: int = 2
    eos_id: int = 3
    max_waiting: int = 1024
    encode_token_budget: int = 512

    def __post_init__(self) -> None:
        if self.max_waiting < 0:
            raise InvalidArgumentError("max_waiting", f"must not be negative: {self.max_waiting}")
        if self.encode_token_budget < 1:
            raise InvalidArgumentError(
                "encode_token_budget", f"must be at least 1, not {self.encode_token_budget}"
            )


class _State(enum.Enum):
    NEW = "has not started"
    SERVING = "serves"
    DRAINING = "is shutting down"
    STOPPED = "has stopped"
    FAILED = "has failed"


class Engine:
    """Generates for many requests at once on one runner, which it owns from `start` to `stop`.

    All methods belong to the event loop that called `start`.

    Args:
        runner: runs the model.
        config: limits and special ids.
        observer: told about steps, queue and results.
        clock: seconds; deadlines are in its time.
    """

    def __init__(
        self,
        runner: ModelRunner,
        config: EngineConfig | None = None,
        observer: EngineObserver | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config or EngineConfig()
        self._runner = runner
        self._observer: EngineObserver = observer or SilentObserver()
        self._clock = clock
        self._scheduler = Scheduler(
            runner.limits,
            bos_id=self.config.bos_id,
            eos_id=self.config.eos_id,
            encode_token_budget=self.config.encode_token_budget,
        )
        self._places = Places(
            runner.limits.max_rows + self.config.max_waiting, self.config.max_waiting // 2
        )
        self._state = _State.NEW
        self._work_arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._mean_compute_seconds = 0.0

    @property
    def limits(self) -> RunnerLimits:
        """What its runner can hold."""
        return self._runner.limits

    @property
    def is_serving(self) -> bool:
        """Whether it accepts new requests."""
        return self._state is _State.SERVING

    @property
    def num_waiting(self) -> int:
        """Sequences that wait for a row."""
        return self._scheduler.num_waiting

    @property
    def num_running(self) -> int:
        """Rows in use."""
        return self._scheduler.num_running

    def now(self) -> float:
        """The time on its clock, in seconds."""
        return self._clock()

    async def start(self) -> None:
        """Begin to serve."""
        assert self._state is _State.NEW, "an engine starts once"
        self._state = _State.SERVING
        self._task = asyncio.create_task(self._run(), name="engine")

    async def drain(self, timeout_seconds: float) -> bool:
        """Refuse new requests and wait until those inside are answered.

        Returns:
            Whether all were, within the time.
        """
        if self._state is _State.SERVING:
            self._state = _State.DRAINING
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._places.empty.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Cancel what is left, once the step under way has ended, and close the runner."""
        if self._state is not _State.FAILED:
            self._state = _State.STOPPED
        self._work_arrived.set()
        if self._task is not None:
            await self._task
            self._task = None

    # --- requests --------------------------------------------------------------------------------

    def submit(self, request: GenerationRequest) -> Generation:
        """Accept one request.

        Raises:
            InvalidArgumentError: the model cannot take it.
            ResourceExhaustedError: there is no place for it now.
            UnavailableError: the engine does not serve.
        """
        return self.submit_many([request])[0]

    def submit_many(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Accept all of the requests or none. Raises what `submit` raises."""
        self._check_serving()
        for request in requests:
            self._max_new_tokens(request)
        self._take_places(len(requests))
        return [self._enqueue(request, self._release_place) for request in requests]

    def admit(self, max_in_flight: int) -> Admission:
        """Let a call in that has many sequences to submit; close what is returned.

        Args:
            max_in_flight: most of its sequences that shall be inside at a time.

        Raises:
            ResourceExhaustedError: there is not a single place.
            UnavailableError: the engine does not serve.
        """
        self._check_serving()
        self._take_places(1)
        return Admission(self._places, max_in_flight, self._enqueue)

    def _check_serving(self) -> None:
        if self._state is not _State.SERVING:
            raise UnavailableError(f"the engine {self._state.value}")

    def _take_places(self, count: int) -> None:
        if self._places.take(count):
            return
        raise ResourceExhaustedError(
            f"{self._places.num_taken} sequences are waiting or running and "
            f"{self._places.capacity} is the limit: no place for {count} more",
            self._retry_after_seconds(),
        )

    def _retry_after_seconds(self) -> float:
        """How long the rows take to work off what waits now, judged by recent sequences."""
        rounds = self._scheduler.num_waiting / self._runner.limits.max_rows
        return min(60.0, max(0.1, rounds * self._mean_compute_seconds))

    def _max_new_tokens(self, request: GenerationRequest) -> int:
        limits = self._runner.limits
        num_source = len(request.source_ids)
        if not 1 <= num_source <= limits.max_source_positions:
            raise InvalidArgumentError(
                "source_ids",
                f"{num_source} tokens; must be between 1 and {limits.max_source_positions}",
            )
        wanted = request.options.max_new_tokens
        if wanted is None:
            return default_max_new_tokens(num_source, limits.max_target_positions)
        if wanted > limits.max_target_positions:
            raise InvalidArgumentError(
                "max_new_tokens", f"{wanted} is more than {limits.max_target_positions}, the limit"
            )
        return wanted

    def _enqueue(
        self, request: GenerationRequest, on_end: Callable[[Generation], None]
    ) -> Generation:
        if self._state not in (_State.SERVING, _State.DRAINING):
            raise UnavailableError(f"the engine {self._state.value}")
        generation = Generation(
            request,
            max_new_tokens=self._max_new_tokens(request),
            submitted_at=self._clock(),
            control=self,
            on_end=on_end,
        )
        self._scheduler.add(generation.job)
        self._work_arrived.set()
        return generation

    def _release_place(self, _: Generation) -> None:
        self._places.release()

    # --- what generations ask (generation.JobControl) --------------------------------------------

    def stream(self, job: Job) -> None:
        """Push the job's tokens at every step from now on."""
        self._scheduler.stream(job)

    def cancel(self, job: Job, error: DragomanError) -> None:
        """End the job before the next step."""
        finished = self._scheduler.cancel(job, error, self._clock())
        if finished is not None:
            self._finish([finished])

    # --- the loop --------------------------------------------------------------------------------

    async def _run(self) -> None:
        thread = StepThread(self._runner)
        try:
            await self._serve(thread)
        except Exception:
            self._state = _State.FAILED
            logger.exception("the engine failed; it takes no more requests")
        finally:
            error = UnavailableError(f"the engine {self._state.value}")
            self._finish(self._scheduler.cancel_all(error, self._clock()))
            await thread.close()

    async def _serve(self, thread: StepThread) -> None:
        update: Update | None = None
        while self._state in (_State.SERVING, _State.DRAINING):
            schedule = self._scheduler.schedule(self._clock())
            step = None if schedule.plan is None else thread.execute(schedule.plan)
            # From here on the model runs. What happened before it is told meanwhile.
            self._hand_out(update, schedule)
            update = None
            if step is not None:
                update = await self._complete(step, schedule)
            else:
                await self._work_arrived.wait()
                self._work_arrived.clear()
        self._hand_out(update, None)

    async def _complete(
        self, step: asyncio.Future[StepOutput], schedule: Schedule
    ) -> Update | None:
        """Wait for a step and take in its output; None if it failed."""
        try:
            output = await step
        except Exception as exc:
            error = InternalError("the model failed while it worked on this request")
            finished = self._scheduler.fail_running(error, self._clock())
            ids = sorted({ended.job.request.request_id for ended in finished})
            logger.error("a step failed and with it the requests %s", ids, exc_info=exc)
            self._finish(finished)
            return None
        assert schedule.plan is not None
        self._observer.on_step(
            schedule.plan.num_rows,
            len(schedule.plan.encodes),
            output.encode_seconds,
            output.step_seconds,
        )
        return self._scheduler.update(output, self._clock())

    def _hand_out(self, update: Update | None, schedule: Schedule | None) -> None:
        """Tell the requests and the observer what the last step and the new plan brought."""
        if update is not None:
            for job in update.first_tokens:
                assert job.first_token_at is not None
                self._observer.on_first_token(job.first_token_at - job.submitted_at)
            for job, token_ids in update.streamed:
                job.reply.push(token_ids)
            self._finish(update.finished)
        if schedule is not None:
            self._finish(schedule.dropped)
            for job in schedule.admitted:
                assert job.admitted_at is not None
                self._observer.on_admitted(job.admitted_at - job.submitted_at)
            self._observer.on_queue(self._scheduler.num_waiting, self._scheduler.num_running)

    def _finish(self, finished: Iterable[Finished]) -> None:
        for ended in finished:
            result = ended.result
            self._mean_compute_seconds += 0.05 * (
                result.compute_seconds - self._mean_compute_seconds
            )
            self._observer.on_finished(result, ended.job.request)
            ended.job.reply.finish(result)

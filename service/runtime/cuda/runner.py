"""Runs a bundle with everything on a GPU: the step without the host.

Caches, token ids, positions and flags of running rows stay on the device. A step feeds the next one
there; the host sends what it wants otherwise (rows that come or leave, a beam's choice), and what
was chosen comes to it in one copy.

One thread launches (`service.runtime.cuda.model`) and never waits for a step, so that the next one
lies ready on the device when one ends. Another waits for completions
(`service.runtime.cuda.in_flight_steps`).

On a CPU the same code runs the same graphs, which is how it is tested where there is no GPU.
"""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from model.bundle import Bundle
from model.sessions import Device, SessionSettings
from service.runtime.batch_sizes import BatchSizeBuckets
from service.runtime.cpu.runner import limits_of
from service.runtime.cuda.in_flight_steps import InFlightStep, InFlightSteps
from service.runtime.cuda.memory import DeviceMemory, read_memory
from service.runtime.cuda.model import DeviceModel, DeviceOptions
from service.runtime.cuda.stream import DeviceStream, open_stream
from service.runtime.plan import RunnerLimits, StepOutput, StepPlan
from service.runtime.scoring import SourceEncoder
from service.runtime.serial_executor import SerialExecutor

__all__ = ["DeviceOptions", "DeviceRunner"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class DeviceRunner:
    """A `PipelinedRunner`. Steps are launched in order by a thread of its own.

    By that thread, since ONNX Runtime keeps CUDA graphs by the thread that captured them, and so
    that a step can begin while the host still thinks about the one before. If more steps than
    `depth` are submitted, it waits for the memory of the host that their copies need.

    Args:
        bundle: with graphs for GPUs (`dragoman export --precision fp16`).
        sessions: device and threads.
        options: how.
        max_source_positions, max_target_positions: lower limits than the bundle's own.
        top_k: tokens that a step returns for each row if its plan doesn't say how many; None for
            the bundle's choice.
        memory: reads the device's memory; for tests.
        stream: opens a stream of the device; for tests.

    Raises:
        StartupError: this device can't run the bundle, or has too little memory; says what to do.
    """

    def __init__(
        self,
        bundle: Bundle,
        sessions: SessionSettings,
        options: DeviceOptions | None = None,
        *,
        max_source_positions: int | None = None,
        max_target_positions: int | None = None,
        top_k: int | None = None,
        memory: Callable[[int], DeviceMemory | None] = read_memory,
        stream: Callable[[Device], DeviceStream] = open_stream,
    ) -> None:
        self._options = options or DeviceOptions()
        max_rows = self._options.max_rows or 0  # known in a moment
        limits = limits_of(bundle, max_rows, max_source_positions, max_target_positions, top_k)
        self._model = DeviceModel(bundle, sessions, self._options, limits, memory, stream)
        self._flights: InFlightSteps | None = None
        self._is_closed = False
        self._worker = SerialExecutor("device")
        self._worker.start()
        start = time.monotonic()
        try:
            self._call(self._open).result()
        except BaseException:
            self.close()
            raise
        logger.info(
            "device ready",
            extra={
                "device": sessions.device,
                "rows": self.limits.max_rows,
                "graphs": self.num_captures,
                "seconds": round(time.monotonic() - start, 3),
            },
        )

    @property
    def limits(self) -> RunnerLimits:
        """What this runner can hold."""
        return self._model.limits

    @property
    def depth(self) -> int:
        """Steps that may be under way before the host looks at the first."""
        return self._options.depth

    @property
    def buckets(self) -> BatchSizeBuckets:
        """The batch sizes at which it steps."""
        return self._model.buckets

    @property
    def num_captures(self) -> int:
        """CUDA graphs that were captured."""
        return self._model.num_captures

    @property
    def cache_bytes(self) -> int:
        """Memory of the caches, all of it taken at the start."""
        return self._model.cache_bytes

    @property
    def arena_bytes(self) -> int:
        """What else has been taken since the start: weights, activations, captured graphs.

        Of the device's free memory, so another process's use of the same GPU counts as well. 0
        where it can't be read.
        """
        return self._model.arena_bytes

    @property
    def encoder_session(self) -> SourceEncoder:
        """The encoder, for whoever else encodes while steps run."""
        return _EncoderBetweenSteps(self)

    def submit(self, plan: StepPlan) -> Future[StepOutput]:
        """Have `plan` carried out after those before it."""
        future: Future[StepOutput] = Future()
        self._put(lambda: self._launch(plan, future))
        return future

    def execute(self, plan: StepPlan) -> StepOutput:
        """Carry out `plan`: copies, then encodes, then one step."""
        return self.submit(plan).result()

    def encode(self, names: Sequence[str], feeds: dict[str, Any]) -> list[Any]:
        """What `run` of the encoder's session brings, after the steps before it."""
        return self._call(lambda: self._model.encode(names, feeds)).result()

    def close(self) -> None:
        """Free sessions and memory, after the steps under way."""
        self._is_closed = True
        self._worker.submit(self._free)
        self._worker.stop()
        self._worker.join()

    # --- the thread ------------------------------------------------------------------------------

    def _free(self) -> None:
        if self._flights is not None:
            self._flights.close()
        try:
            self._model.close()
        except Exception:  # of a device that is lost: what was taken of it goes with the process
            logger.exception("memory of the device could not be freed")

    def _open(self) -> None:
        self._model.open()
        self._flights = InFlightSteps(self._model.stream, self._model.ring)

    def _call(self, function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(function())
            except BaseException as exc:
                future.set_exception(exc)

        self._put(work)
        return future

    def _put(self, work: Callable[[], None]) -> None:
        if self._is_closed:
            raise RuntimeError("the runner is closed")
        self._worker.submit(work)

    def _launch(self, plan: StepPlan, future: Future[StepOutput]) -> None:
        """Launch `plan`; who waits for steps answers."""
        assert self._flights is not None
        model = self._model
        try:
            staging = model.ring.take()
        except BaseException as exc:
            future.set_exception(exc)
            return
        flight = InFlightStep(future, staging, time.perf_counter())
        try:
            for landing in self._flights.landings():
                model.learn(landing)
            model.launch(plan, flight)
            model.stream.record(staging.ended)
        except BaseException as exc:
            # Its frames hold what it had encoded, and this flight: a cycle, which would keep memory
            # of the device until the collector comes by.
            traceback.clear_frames(exc.__traceback__)
            flight.error = exc
            # What was launched of it may still need its memory.
            with contextlib.suppress(Exception):
                model.stream.record(staging.ended)
        self._flights.add(flight)


class _EncoderBetweenSteps:
    """The encoder of a runner, for others: it runs when its turn has come."""

    def __init__(self, runner: DeviceRunner) -> None:
        self._runner = runner

    def run(self, names: Sequence[str], feeds: dict[str, Any], /) -> list[Any]:
        """As `onnxruntime.InferenceSession.run`."""
        return self._runner.encode(names, feeds)

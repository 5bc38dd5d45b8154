"""The model runner of a GPU: the whole state of running rows stays on the device.

Caches, token ids, positions and flags stay there, and a step's output is the next step's input. The
host sends only differences (rows that join or leave, a beam's choice), and gets the candidates in
one copy.

The launch thread (`service.runtime.cuda.model`) never waits for a step, so that the next step is
queued on the device before one ends. A second thread waits for completions
(`service.runtime.cuda.in_flight_steps`).

For tests without a GPU, the same code runs the same graphs on a CPU.
"""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from model.bundle.bundle import Bundle
from model.bundle.sessions import Device, SessionSettings
from service.common.serial_executor import SerialExecutor
from service.domain.plan import RunnerLimits, StepOutput, StepPlan
from service.runtime.batch_sizes import BatchSizeBuckets
from service.runtime.cpu.kv_cache import limits_of
from service.runtime.cuda.in_flight_steps import InFlightStep, InFlightSteps
from service.runtime.cuda.memory import DeviceMemory, read_memory
from service.runtime.cuda.model import DeviceModel, DeviceOptions
from service.runtime.cuda.stream import CudaStream, open_stream
from service.runtime.scoring import SourceEncoder

__all__ = ["DeviceOptions", "DeviceRunner"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class DeviceRunner:
    """The `AsyncRunner` of a GPU. A separate thread launches the steps in order.

    It is one thread, since ONNX Runtime keeps CUDA graphs by the thread that captured them, and a
    separate one, so that a step can begin while the host still processes the output of the last
    one. If more than `depth` steps are submitted, it waits for a free staging.

    Args:
        bundle: bundle with graphs for GPUs (`dragoman export --precision fp16`).
        sessions: device and threads.
        options: number of rows, CUDA graphs and depth.
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
        memory: Callable[[int], DeviceMemory | None] = read_memory,
        stream: Callable[[Device], CudaStream] = open_stream,
    ) -> None:
        self._options = options or DeviceOptions()
        max_rows = self._options.max_rows or 0  # 0 until the model is open
        limits = limits_of(bundle, max_rows)
        self._model = DeviceModel(bundle, sessions, self._options, limits, memory, stream)
        self._in_flight: InFlightSteps | None = None
        self._last: tuple[StepPlan, StepOutput] | None = None  # executed
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
        """Limits of this runner."""
        return self._model.limits

    @property
    def depth(self) -> int:
        """Most steps in flight."""
        return max(1, self._options.depth)

    @property
    def buckets(self) -> BatchSizeBuckets:
        """The batch sizes of steps."""
        return self._model.buckets

    @property
    def num_captures(self) -> int:
        """Number of captured CUDA graphs."""
        return self._model.num_captures

    @property
    def cache_bytes(self) -> int:
        """Size of the caches in bytes, all of it allocated at the start."""
        return self._model.cache_bytes

    @property
    def arena_bytes(self) -> int:
        """Other memory allocated since the start: weights, activations, captured graphs.

        It is measured by the device's free memory, so another process on the same GPU counts too. 0
        where it can't be read.
        """
        return self._model.arena_bytes

    @property
    def encoder_session(self) -> SourceEncoder:
        """The encoder for scoring: this runner itself, which runs it between steps (`run`)."""
        return self

    def submit(self, plan: StepPlan) -> Future[StepOutput]:
        """Carry out `plan` after the earlier plans, without waiting for it."""
        future: Future[StepOutput] = Future()
        self._enqueue(lambda: self._launch(plan, future))
        return future

    def execute(self, plan: StepPlan) -> StepOutput:
        """Carry out `plan`: copies, then encodes, then one step."""
        output = self.submit(plan).result()
        self._last = plan, output
        return output

    def follow_up(self) -> StepOutput:
        """Run a step after the last one, in which each row continues with its best token."""
        assert self._last is not None, "nothing was executed"
        plan, output = self._last
        return self.execute(plan.followed_by(output))

    def run(self, names: Sequence[str], feeds: dict[str, Any], /) -> list[Any]:
        """Run the encoder's session on the launch thread, after the earlier steps."""
        return self._call(lambda: self._model.encode(names, feeds)).result()

    def close(self) -> None:
        """Free sessions and memory, after the steps in flight."""
        self._is_closed = True
        self._worker.submit(self._free)
        self._worker.stop()
        self._worker.join()

    # --- the launch thread -----------------------------------------------------------------------

    def _free(self) -> None:
        if self._in_flight is not None:
            self._in_flight.close()
        try:
            self._model.close()
        except Exception:  # the device is lost: its memory is freed with the process
            logger.exception("memory of the device could not be freed")

    def _open(self) -> None:
        self._model.open()
        self._in_flight = InFlightSteps(self._model.stream, self._model.ring)

    def _call(self, function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(function())
            except BaseException as exc:
                future.set_exception(exc)

        self._enqueue(work)
        return future

    def _enqueue(self, work: Callable[[], None]) -> None:
        if self._is_closed:
            raise RuntimeError("the runner is closed")
        self._worker.submit(work)

    def _launch(self, plan: StepPlan, future: Future[StepOutput]) -> None:
        """Launch `plan`; `InFlightSteps` sets the future's result."""
        assert self._in_flight is not None
        model = self._model
        try:
            staging = model.ring.acquire()
        except BaseException as exc:
            future.set_exception(exc)
            return
        step = InFlightStep(future, staging, time.perf_counter())
        try:
            for number, chosen in self._in_flight.completions():
                model.complete(number, chosen)
            model.launch(plan, step)
            model.stream.record(staging.ended)
        except BaseException as exc:
            # Stack frames refer to encoder outputs and to this step: a cycle, which would hold
            # device memory until the garbage collector runs.
            traceback.clear_frames(exc.__traceback__)
            step.error = exc
            # The launched part may still use its memory.
            with contextlib.suppress(Exception):
                model.stream.record(staging.ended)
        self._in_flight.add(step)

"""Steps in flight: launched on the device, with no completion received by the host.

The launch thread never blocks, because the device would become idle. A second thread waits for
completions in order: it sets each step's future and queues the completion for the launch thread.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from service.common.serial_executor import SerialExecutor
from service.domain.plan import Float32, Int64, StepOutput
from service.runtime.cuda.staging import Staging, StagingRing
from service.runtime.cuda.stream import CudaStream


@dataclass
class InFlightStep:
    """A step in flight.

    Attributes:
        future: future of its output.
        staging: memory through which it exchanges arrays with the host; released at the end.
        launched_at: time of the launch, in seconds of `time.perf_counter`.
        number: number of the step by the count of `DeviceRowStates`; 0 if no row steps.
        num_rows: number of rows that step.
        k: number of candidates of each row that the plan asks for.
        num_candidates: number of candidates of each row that the graph returns.
        num_encodes: number of sources encoded before the step.
        num_padding: number of encoder positions without a token.
        error: error of the launch; None if the step was launched.
    """

    future: Future[StepOutput]
    staging: Staging
    launched_at: float
    number: int = 0
    num_rows: int = 0
    k: int = 1
    num_candidates: int = 1
    num_encodes: int = 0
    num_padding: int = 0
    error: BaseException | None = None


# The number of a step and the best tokens of its rows [num_rows]; None if it failed.
StepCompletion = tuple[int, Int64 | None]


class InFlightSteps:
    """Waits for steps in the order of their launch, on a thread of its own.

    Args:
        stream: stream on which they were launched.
        ring: ring to which their stagings are released.
    """

    def __init__(self, stream: CudaStream, ring: StagingRing) -> None:
        self._stream = stream
        self._ring = ring
        self._completions: queue.SimpleQueue[StepCompletion] = queue.SimpleQueue()
        self._last_end = 0.0
        self._lost: Exception | None = None  # error if the device can't be used in the thread
        self._worker = SerialExecutor("device-results")
        self._worker.start()
        self._worker.submit(self._use_device)

    def add(self, step: InFlightStep) -> None:
        """Add a step that was launched, or could not be launched."""
        self._worker.submit(lambda: self._complete(step))

    def completions(self) -> Iterator[StepCompletion]:
        """Yield the completions since the last call, one for each step with a set future."""
        while True:
            try:
                yield self._completions.get_nowait()
            except queue.Empty:
                return

    def close(self) -> None:
        """Wait for all steps."""
        self._worker.stop()
        self._worker.join()

    def _use_device(self) -> None:
        try:
            self._stream.use()
        except Exception as exc:
            self._lost = exc

    def _complete(self, step: InFlightStep) -> None:
        step.error = step.error or self._lost
        is_awaited = step.future.set_running_or_notify_cancel()
        try:
            output = self._output(step)
            chosen = output.top_ids[:, 0].copy() if step.num_rows else None
        except BaseException as exc:
            self._last_end = time.perf_counter()
            if step.error is None:  # otherwise the launch thread knows
                self._completions.put((step.number, None))
            self._ring.release(step.staging)
            if is_awaited:
                step.future.set_exception(exc)
            return
        if chosen is not None:
            self._completions.put((step.number, chosen))
        self._ring.release(step.staging)
        if is_awaited:
            step.future.set_result(output)

    def _output(self, step: InFlightStep) -> StepOutput:
        """Wait for the output of a step. Its time begins at the end of the previous step."""
        start = max(step.launched_at, self._last_end)
        encoded = start
        if step.num_encodes and step.error is None:
            self._stream.wait(step.staging.encoded)
            encoded = max(start, time.perf_counter())
        try:
            self._stream.wait(step.staging.ended)
        except Exception:
            if step.error is None:
                raise
        if step.error is not None:
            raise step.error
        self._last_end = time.perf_counter()
        top_ids, top_logits, log_sum_exp = _parts(step)
        return StepOutput(
            top_ids,
            top_logits,
            log_sum_exp,
            encoded - start if step.num_encodes else 0.0,
            self._last_end - encoded if step.num_rows else 0.0,
            step.num_padding,
        )


def _parts(step: InFlightStep) -> tuple[Int64, Float32, Float32]:
    """Copy ids, logits and log-sum-exp from the staging, which another step will use."""
    k, most = step.k, step.num_candidates
    if not step.num_rows:
        return np.zeros((0, k), np.int64), np.zeros((0, k), np.float32), np.zeros(0, np.float32)
    chosen = step.staging.downloaded
    return (
        chosen[:, :k].astype(np.int64),
        np.array(chosen[:, most : most + k]),
        np.array(chosen[:, 2 * most]),
    )

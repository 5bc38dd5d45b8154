"""Steps that have been launched and not been seen.

Who launches must not wait, or the device would; so who waits is another thread. It answers for each
step when its turn has come, and leaves word of what was chosen for the one that launches.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from service.runtime.cuda.staging import Staging, StagingRing
from service.runtime.cuda.stream import DeviceStream
from service.runtime.plan import Float32, Int64, StepOutput
from service.runtime.serial_executor import SerialExecutor


@dataclass
class InFlightStep:
    """One step.

    Attributes:
        future: to be answered.
        staging: through which it exchanges arrays with the host; given back at the end.
        launched_at: when, in seconds of `time.perf_counter`.
        number: the step's, as `FedRows` counts; None if no row steps.
        num_rows: rows whose choices are wanted.
        k: candidates that are wanted of each.
        num_candidates: as many as were asked for.
        num_encodes: sources that are encoded before the step.
        num_padding: positions of the encoder that hold no token.
        error: why it could not be launched.
    """

    future: Future[StepOutput]
    staging: Staging
    launched_at: float
    number: int | None = None
    num_rows: int = 0
    k: int = 1
    num_candidates: int = 1
    num_encodes: int = 0
    num_padding: int = 0
    error: BaseException | None = None


@dataclass(frozen=True)
class StepCompletion:
    """What became of a step.

    Attributes:
        number: the step's.
        chosen: [num_rows] the best token of each; None if it failed.
    """

    number: int | None
    chosen: Int64 | None


class InFlightSteps:
    """Waits for steps in the order in which they were launched, on a thread of its own.

    Args:
        stream: on which they are.
        ring: takes their stagings back.
        clock: seconds.
    """

    def __init__(
        self,
        stream: DeviceStream,
        ring: StagingRing,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._stream = stream
        self._ring = ring
        self._clock = clock
        self._landings: queue.SimpleQueue[StepCompletion] = queue.SimpleQueue()
        self._last_end = 0.0
        self._lost: Exception | None = None  # why nothing of the device can be waited for
        self._worker = SerialExecutor("device-results")
        self._worker.start()
        self._worker.submit(self._use_device)

    def add(self, flight: InFlightStep) -> None:
        """A step was launched, or could not be."""
        self._worker.submit(lambda: self._land(flight))

    def landings(self) -> Iterator[StepCompletion]:
        """Of those that have ended since this was last asked. All that anybody was told of."""
        while True:
            try:
                yield self._landings.get_nowait()
            except queue.Empty:
                return

    def close(self) -> None:
        """Wait for all of them."""
        self._worker.stop()
        self._worker.join()

    def _use_device(self) -> None:
        try:
            self._stream.use()
        except Exception as exc:
            self._lost = exc

    def _land(self, flight: InFlightStep) -> None:
        flight.error = flight.error or self._lost
        is_awaited = flight.future.set_running_or_notify_cancel()
        try:
            output = self._output(flight)
            chosen = output.top_ids[:, 0].copy() if flight.num_rows else None
        except BaseException as exc:
            self._last_end = self._clock()
            if flight.error is None:  # else who launched knows
                self._landings.put(StepCompletion(flight.number, None))
            self._ring.give_back(flight.staging)
            if is_awaited:
                flight.future.set_exception(exc)
            return
        if chosen is not None:
            self._landings.put(StepCompletion(flight.number, chosen))
        self._ring.give_back(flight.staging)
        if is_awaited:
            flight.future.set_result(output)

    def _output(self, flight: InFlightStep) -> StepOutput:
        """Wait for it. Times are those that it had the device for itself, as they pass here."""
        start = max(flight.launched_at, self._last_end)
        encoded = start
        if flight.num_encodes and flight.error is None:
            self._stream.wait(flight.staging.encoded)
            encoded = max(start, self._clock())
        try:
            self._stream.wait(flight.staging.ended)
        except Exception:
            if flight.error is None:
                raise
        if flight.error is not None:
            raise flight.error
        self._last_end = self._clock()
        top_ids, top_logits, log_sum_exp = _parts(flight)
        return StepOutput(
            top_ids,
            top_logits,
            log_sum_exp,
            encoded - start if flight.num_encodes else 0.0,
            self._last_end - encoded if flight.num_rows else 0.0,
            flight.num_padding,
        )


def _parts(flight: InFlightStep) -> tuple[Int64, Float32, Float32]:
    """Ids, logits and log-sum-exp, copied: what was fetched belongs to another step soon."""
    k, most = flight.k, flight.num_candidates
    if not flight.num_rows:
        return np.zeros((0, k), np.int64), np.zeros((0, k), np.float32), np.zeros(0, np.float32)
    chosen = flight.staging.fetched
    return (
        chosen[:, :k].astype(np.int64),
        np.array(chosen[:, most : most + k]),
        np.array(chosen[:, 2 * most]),
    )

"""Runs a bundle with everything on a GPU: the step without the host.

Caches, token ids, positions and flags of running rows stay on the device. A step feeds the next
one there; the host sends what it wants otherwise (rows that come or leave, a beam's choice), and
reads what was chosen, in one copy.

On a CPU the same code runs the same graphs, which is how it is tested where there is no GPU.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnxruntime as ort

from model.bundle import Bundle, BundleError
from model.out_of_memory import is_out_of_memory
from model.sessions import Device, SessionSettings, load_cuda_libraries
from service.device_caches import STATES, DeviceCaches, most_rows
from service.device_encoder import ENCODE_TOKEN_BUDGET, DeviceEncoder
from service.device_memory import DeviceMemory, read_memory, rows_for
from service.device_step import DeviceStep
from service.errors import StartupError
from service.ladder import Ladder, rungs_that_fit
from service.plan import Int64, RunnerLimits, StepOutput, StepPlan
from service.runner import cache_shape
from service.worker import Worker

logger = logging.getLogger(__name__)

T = TypeVar("T")

_UNKNOWN = -1  # of a state of a row on the device: differs from whatever is wanted


@dataclass(frozen=True)
class DeviceOptions:
    """How a `DeviceRunner` runs.

    Attributes:
        max_rows: rows that can step at once; None for as many as the memory holds, up to 512.
        captures: use CUDA graphs where there is a GPU.
        depth: steps that may be under way before the host looks at the first.
    """

    max_rows: int | None = None
    captures: bool = True
    depth: int = 2


class DeviceRunner:
    """A `PipelinedRunner`. Steps are carried out in order on a thread of its own.

    On that thread, since ONNX Runtime keeps CUDA graphs by the thread that captured them, and so
    that a step can begin while the host still thinks about the one before.

    Args:
        bundle: with graphs for GPUs (`dragoman export --precision fp16`).
        sessions: device and threads.
        options: how.
        max_source_positions, max_target_positions: lower limits than the bundle's own.
        top_k: tokens that a step returns for each row if its plan doesn't say how many; None for
            the bundle's choice.
        memory: reads the device's memory; for tests.

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
    ) -> None:
        self._bundle = bundle
        self._settings = sessions
        self._options = options or DeviceOptions()
        self._read_memory = memory
        self._limits = RunnerLimits(
            max_rows=self._options.max_rows or 0,  # known in a moment
            max_source_positions=max_source_positions or bundle.max_source_positions,
            max_target_positions=max_target_positions or bundle.max_target_positions,
            top_k=min(top_k or bundle.top_k, bundle.config.vocab_size),
            vocab_size=bundle.config.vocab_size,
        )
        self.num_captures = 0
        self._worker = Worker("device")
        self._worker.start()
        try:
            self._call(self._open).result()
        except BaseException:
            self.close()
            raise

    @property
    def limits(self) -> RunnerLimits:
        """What this runner can hold."""
        return self._limits

    @property
    def depth(self) -> int:
        """Steps that may be under way before the host looks at the first."""
        return self._options.depth

    @property
    def ladder(self) -> Ladder:
        """The batch sizes at which it steps."""
        return self._ladder

    @property
    def cache_bytes(self) -> int:
        """Memory of the caches, all of it taken at the start."""
        return self._cache_bytes

    @property
    def arena_bytes(self) -> int:
        """What else has been taken since the start: weights, activations, captured graphs.

        Of the device's free memory, so another process's use of the same GPU counts as well. 0
        where it can't be read.
        """
        now = self._read_memory(self._device.index) if self._device.kind == "cuda" else None
        if now is None or self._memory_at_start is None:
            return 0
        return max(0, self._memory_at_start.free - now.free - self.cache_bytes)

    @property
    def encoder_session(self) -> ort.InferenceSession:
        """The encoder, for whoever else encodes while steps run."""
        return self._encoder.session

    def submit(self, plan: StepPlan) -> Future[StepOutput]:
        """Have `plan` carried out after those before it."""
        return self._call(lambda: self._execute(plan))

    def execute(self, plan: StepPlan) -> StepOutput:
        """Carry out `plan`: copies, then encodes, then one step."""
        return self.submit(plan).result()

    def close(self) -> None:
        """Free sessions and memory, after the steps under way."""
        self._worker.submit(self._free)
        self._worker.stop()
        self._worker.join()

    # --- the thread ------------------------------------------------------------------------------

    def _free(self) -> None:
        for name in ("_encoder", "_step", "_caches"):
            self.__dict__.pop(name, None)

    def _call(self, function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(function())
            except BaseException as exc:
                future.set_exception(exc)

        self._worker.submit(work)
        return future

    def _open(self) -> None:
        start = time.monotonic()
        try:
            self._open_sessions()
            self._make_room()
            self._capture()
        except BundleError as exc:
            raise StartupError(str(exc)) from exc
        except Exception as exc:
            if not is_out_of_memory(exc):
                raise
            raise StartupError(self._too_little(exc)) from exc
        logger.info(
            "device ready",
            extra={
                "device": self._settings.device,
                "rows": self._limits.max_rows,
                "graphs": self.num_captures,
                "seconds": round(time.monotonic() - start, 3),
            },
        )

    def _open_sessions(self) -> None:
        self._device = Device.parse(self._settings.device)
        on_gpu = self._device.kind == "cuda"
        load_cuda_libraries()  # the memory is read with one of them
        self._memory_at_start = self._read_memory(self._device.index) if on_gpu else None
        self._encoder = DeviceEncoder(self._bundle, self._settings)
        if not self._bundle.is_resident:
            raise StartupError(
                f"{self._bundle.path} has no graphs for GPUs: export the checkpoint again, with "
                f"--precision fp16"
            )

    def _make_room(self) -> None:
        max_rows = self._options.max_rows
        if max_rows is None:
            one = cache_shape(self._bundle, dataclasses.replace(self._limits, max_rows=1))
            max_rows = rows_for(
                self._read_memory(self._device.index),
                one.num_bytes + _step_bytes_per_row(self._bundle),
                _bytes_beside_rows(self._bundle),
            )
            max_rows = rungs_that_fit(min(max_rows, most_rows(one)))
        self._limits = dataclasses.replace(self._limits, max_rows=max_rows)
        self._ladder = Ladder(max_rows)
        room = dataclasses.replace(self._limits, max_rows=self._ladder.top)
        self._caches = DeviceCaches(self._bundle, self._settings, cache_shape(self._bundle, room))
        self._cache_bytes = self._caches.num_bytes
        self._forget()
        self._source_lengths = np.ones(self._ladder.top, np.int32)
        self._set_rows(0, self._ladder.top, None)

    def _capture(self) -> None:
        captures = self._options.captures and self._device.kind == "cuda"
        try:
            self._open_step(captures)  # refused if a part of the graph would run on the CPU
            self.num_captures = self._step.capture()
        except Exception as exc:
            if is_out_of_memory(exc) or not captures:
                raise
            logger.exception("no CUDA graph could be captured; steps will be slower without")
            self.__dict__.pop("_step", None)  # before the weights are loaded once more
            self._open_step(captures=False)
        if not self.num_captures:
            self._step.warm_up()

    def _open_step(self, captures: bool) -> None:
        self._step = DeviceStep(
            self._bundle,
            self._settings,
            self._caches,
            self._ladder,
            self._limits,
            captures=captures,
        )

    def _too_little(self, exc: Exception) -> str:
        rows = self._limits.max_rows
        memory = self._read_memory(self._device.index) if self._device.kind == "cuda" else None
        free = f" ({memory.free:,} of {memory.total:,} bytes are free)" if memory else ""
        what = f"the model and {rows} rows" if rows else "the model"
        return (
            f"{self._settings.device} has too little memory for {what}{free}: set fewer rows "
            f"(--max-rows), end what else uses it, or choose another GPU (--device cuda:1). "
            f"It said: {exc}"
        )

    # --- a step ----------------------------------------------------------------------------------

    def _execute(self, plan: StepPlan) -> StepOutput:
        try:
            return self._carry_out(plan)
        except Exception:
            self._forget()  # how far it came is unknown
            raise

    def _carry_out(self, plan: StepPlan) -> StepOutput:
        start = time.perf_counter()
        is_known = self._goes_on(plan)
        self._num_stepped = 0
        if plan.copies:
            self._caches.copy_rows(plan.copies, self._source_lengths)
            crossing = [copy for copy in plan.copies if copy.cross]
            sources = [copy.source for copy in crossing]
            self._source_lengths[[copy.target for copy in crossing]] = self._source_lengths[sources]
        num_padding = 0
        for batch, encoded in self._encoder.encode(plan.encodes):
            lengths = [len(item.source_ids) for item in batch]
            num_padding += len(lengths) * max(lengths) - sum(lengths)
            self._caches.store(batch, encoded)
            for item in batch:
                self._source_lengths[list(item.rows)] = len(item.source_ids)
        encode_seconds = time.perf_counter() - start if plan.encodes else 0.0
        k = min(plan.top_k or self._limits.top_k, self._limits.vocab_size)
        num_rows = plan.num_rows
        if not num_rows:
            return StepOutput(
                np.zeros((0, k), np.int64),
                np.zeros((0, k), np.float32),
                np.zeros(0, np.float32),
                encode_seconds,
                0.0,
                num_padding,
            )
        start = time.perf_counter()
        rung = self._ladder.rung(num_rows)
        if not is_known:
            self._set_rows(num_rows, rung, plan)
        most = self._step.num_candidates(k)
        chosen, _ = self._step.run(num_rows, rung, most, plan.adjustments)
        top_ids = chosen[:, :k].astype(np.int64)
        self._went_on(top_ids[:, 0])
        self._num_stepped = num_rows
        return StepOutput(
            top_ids,
            np.ascontiguousarray(chosen[:, most : most + k]),
            np.ascontiguousarray(chosen[:, 2 * most]),
            encode_seconds,
            time.perf_counter() - start,
            num_padding,
        )

    def _goes_on(self, plan: StepPlan) -> bool:
        """Whether the device knows everything: those that stepped before go on, each with a place.

        To find that out row by row takes longer than to launch a step.
        """
        return (
            plan.chained is not None
            and plan.num_rows == self._num_stepped > 0
            and not (plan.copies or plan.encodes)
            and bool(plan.chained.all())
            and self._known[1, : self._num_stepped].max() < self._limits.max_target_positions
        )

    def _set_rows(self, num_rows: int, rung: int, plan: StepPlan | None) -> None:
        """Tell the device what it doesn't know yet of the rows that step."""
        wanted = np.zeros((len(STATES), rung), np.int64)  # token 0 at position 0: nobody's row
        wanted[3] = self._source_lengths[:rung]
        if plan is not None:
            wanted[0, :num_rows] = plan.token_ids
            wanted[1, :num_rows] = plan.positions
            wanted[2, :num_rows] = 1
            if plan.chained is not None:
                # After a failure nothing is known of a row, and nobody waits for it any more.
                chained = np.flatnonzero(plan.chained & (self._known[0, :num_rows] != _UNKNOWN))
                wanted[:3, plan.chained.nonzero()[0]] = 0
                wanted[:, chained] = self._known[:, chained]
                # One that ended by its length, which the host doesn't know yet, has no place left.
                last = self._limits.max_target_positions - 1
                wanted[1, chained] = np.minimum(wanted[1, chained], last)
        rows = np.flatnonzero((wanted != self._known[:, :rung]).any(axis=0))
        if len(rows):
            self._caches.set_rows(rows, wanted[:, rows])
            self._known[:, rows] = wanted[:, rows]

    def _went_on(self, chosen: Int64) -> None:
        """Follow what the step itself did to the states of its first rows."""
        token_ids, positions, running, _ = self._known[:, : len(chosen)]
        token_ids[:] = chosen
        running[chosen == self._bundle.config.eos_id] = 0
        positions += running

    def _forget(self) -> None:
        self._known = np.full((len(STATES), self._ladder.top), _UNKNOWN, np.int64)
        self._num_stepped = 0


def _step_bytes_per_row(bundle: Bundle) -> int:
    """About what a row takes while it steps: the logits in three forms, and everything else."""
    config = bundle.config
    return 16 * config.vocab_size + 64 * (config.d_model + config.ffn_dim)


def _bytes_beside_rows(bundle: Bundle) -> int:
    """About what is taken after the encoder is loaded, however many rows there are.

    The decoder's weights twice, since scoring has its own, and an encode of the most sources that
    join at once: what it computes, and what of it is under way to the rows.
    """
    config = bundle.config
    weights = sum(file.stat().st_size for file in bundle.path.iterdir() if file.is_file())
    states = (16 * config.num_decoder_layers + 8) * config.d_model + 2 * config.ffn_dim
    attention = 4 * config.num_heads * bundle.max_source_positions
    return 2 * weights + 2 * ENCODE_TOKEN_BUDGET * (states + attention)

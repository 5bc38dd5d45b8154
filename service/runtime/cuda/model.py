"""A bundle on a device: sessions, caches, and the stream on which everything is launched.

No function waits for a step. The device executes in the order of the calls.
"""

from __future__ import annotations

import dataclasses
import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from model.bundle.bundle import Bundle
from model.bundle.manifest import BundleError
from model.bundle.out_of_memory import is_out_of_memory
from model.bundle.sessions import Device, SessionSettings, check_device
from service.domain.plan import Int64, RunnerLimits, StepPlan
from service.errors import StartupError
from service.runtime.batch_sizes import BatchSizeBuckets
from service.runtime.cpu.kv_cache import cache_shape
from service.runtime.cuda.caches import DeviceCaches
from service.runtime.cuda.encoder import DeviceEncoder
from service.runtime.cuda.in_flight_steps import InFlightStep
from service.runtime.cuda.memory import (
    DeviceMemory,
    bytes_beside_rows,
    rows_for,
    step_bytes_per_row,
)
from service.runtime.cuda.row_states import DeviceRowStates
from service.runtime.cuda.staging import Staging, StagingRing
from service.runtime.cuda.step import DeviceStep
from service.runtime.cuda.stream import CudaStream

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeviceOptions:
    """Options for running a bundle on a device.

    Attributes:
        max_rows: number of rows that can step at once; None for as many as fit into memory, up to
            512.
        captures: whether to use CUDA graphs if there is a GPU.
        depth: most steps in flight on the device; 0 to wait for each launch, which is slow, but
            attributes an error to the operator that caused it.
        num_models: number of models that share the device.
    """

    max_rows: int | None = None
    captures: bool = True
    depth: int = 2
    num_models: int = 1


class DeviceModel:
    """Launches steps. Belongs to the thread that calls `open`.

    Args:
        bundle, settings, options: same as in `DeviceRunner`.
        limits: longest source and target; `max_rows` is used only if the options set it.
        read_memory: reads the device's memory.
        open_stream: opens a stream of the device.

    Attributes:
        device: the device.
        stream: stream on which everything is launched.
        ring: memory through which steps exchange arrays with the host.
        limits, buckets, cache_bytes, num_captures: known after `open`.
    """

    def __init__(
        self,
        bundle: Bundle,
        settings: SessionSettings,
        options: DeviceOptions,
        limits: RunnerLimits,
        read_memory: Callable[[int], DeviceMemory | None],
        open_stream: Callable[[Device], CudaStream],
    ) -> None:
        self._bundle = bundle
        self._settings = settings
        self._options = options
        self._read_memory = read_memory
        self._open_stream = open_stream
        self._memory_at_start: DeviceMemory | None = None
        self.device = Device()
        self.limits = limits
        self.cache_bytes = 0
        self.num_captures = 0

    @property
    def arena_bytes(self) -> int:
        """Memory allocated besides the caches, in bytes; 0 where it can't be read."""
        now = self._memory()
        if now is None or self._memory_at_start is None:
            return 0
        return max(0, self._memory_at_start.free - now.free - self.cache_bytes)

    def open(self) -> None:
        """Load and allocate everything, and capture graphs.

        Raises:
            StartupError: this device can't run the bundle, or has too little memory.
        """
        try:
            self._open_sessions()
            self._allocate()
            self._capture()
        except BundleError as exc:
            raise StartupError(str(exc)) from exc
        except Exception as exc:
            if not is_out_of_memory(exc):
                raise
            raise StartupError(self._too_little_memory(exc)) from exc

    def launch(self, plan: StepPlan, step: InFlightStep) -> None:
        """Launch `plan`, and describe the expected output in `step`."""
        try:
            self._launch(plan, step)
        except BaseException:
            self._row_states.forget()
            raise

    def complete(self, number: int, chosen: Int64 | None) -> None:
        """Record the tokens that a step has chosen; None if it failed."""
        if chosen is None:
            self._row_states.forget()
        else:
            self._row_states.completed(number, chosen)

    def encode(self, names: Sequence[str], feeds: dict[str, Any]) -> list[Any]:
        """Run the encoder's session after the earlier steps.

        ONNX Runtime may copy the feeds into memory that earlier runs still use, so this waits for
        them.
        """
        self.stream.synchronize()
        outputs: list[Any] = self._encoder.session.run(names, feeds)
        return outputs

    def close(self) -> None:
        """Free the sessions, then their memory; nothing may be in flight."""
        for name in ("_encoder", "_step", "_caches"):
            self.__dict__.pop(name, None)
        for name in ("ring", "stream"):
            if (used := self.__dict__.pop(name, None)) is not None:
                used.close()

    # --- opening ---------------------------------------------------------------------------------

    def _open_sessions(self) -> None:
        self.device = Device.parse(self._settings.device)
        check_device(self._bundle, self.device)
        self.stream = self._open_stream(self.device)
        self._memory_at_start = self._memory()
        self._settings = dataclasses.replace(
            self._settings, compute_stream=self.stream.address, waits=not self._options.depth
        )
        self._encoder = DeviceEncoder(self._bundle, self._settings)
        if not self._bundle.is_resident:
            raise StartupError(
                f"{self._bundle.path} has no graphs for GPUs: export the checkpoint again, with "
                f"--precision fp16"
            )

    def _allocate(self) -> None:
        max_rows = self._options.max_rows
        if max_rows is None:
            one = cache_shape(self._bundle, dataclasses.replace(self.limits, max_rows=1))
            max_rows = rows_for(
                self._read_memory(self.device.index),
                one.num_bytes + step_bytes_per_row(self._bundle),
                bytes_beside_rows(self._bundle),
                self._options.num_models,
            )
        self.limits = dataclasses.replace(self.limits, max_rows=max_rows)
        self.buckets = BatchSizeBuckets(max_rows)
        padded = dataclasses.replace(self.limits, max_rows=self.buckets.largest)
        shape = cache_shape(self._bundle, padded)
        self._caches = DeviceCaches(self._bundle, self._settings, shape, self.stream)
        self.cache_bytes = shape.num_bytes
        self._row_states = DeviceRowStates(
            self.buckets.largest,
            self.limits.max_target_positions,
            self._bundle.config.eos_id,
            self._bundle.config.num_memory_rows,
        )
        # One more than the steps in flight: it is filled while the first one is being read.
        self.ring = StagingRing(self.stream, self._options.depth + 1)
        staging = self.ring.acquire()
        self._update_rows(self.buckets.largest, None, staging)
        self.stream.synchronize()
        self.ring.release(staging)

    def _capture(self) -> None:
        captures = self._options.captures and self._is_on_gpu
        try:
            self._open_step(captures)  # refused if a part of the graph would run on the CPU
        except Exception as exc:
            if captures:  # otherwise nothing of the step can be freed
                self.stream.end_capture()
            if is_out_of_memory(exc) or not captures:
                raise
            logger.exception("no CUDA graph could be captured; steps will be slower without")
            self.stream.synchronize()
            # Free the step and its objects in stack frames before the weights are loaded again.
            self.__dict__.pop("_step", None)
            traceback.clear_frames(exc.__traceback__)
            self._open_step(captures=False)

    def _open_step(self, captures: bool) -> None:
        self._step = DeviceStep(
            self._bundle,
            self._settings,
            self._caches,
            self.buckets,
            self.limits,
            self.stream,
            captures=captures,
        )
        num_captures = self._step.capture()
        self.stream.synchronize()  # also waits for copies
        self.num_captures = num_captures

    def _too_little_memory(self, exc: Exception) -> str:
        rows = self.limits.max_rows
        memory = self._memory()
        free = f" ({memory.free:,} of {memory.total:,} bytes are free)" if memory else ""
        what = f"the model and {rows} rows" if rows else "the model"
        return (
            f"{self._settings.device} has too little memory for {what}{free}: set fewer rows "
            f"(--max-rows), end what else uses it, or choose another GPU (--device cuda:1). "
            f"It said: {exc}"
        )

    def _memory(self) -> DeviceMemory | None:
        return self._read_memory(self.device.index) if self._is_on_gpu else None

    @property
    def _is_on_gpu(self) -> bool:
        return self.device.kind == "cuda"

    # --- a step ----------------------------------------------------------------------------------

    def _launch(self, plan: StepPlan, step: InFlightStep) -> None:
        staging = step.staging
        is_up_to_date = self._row_states.is_up_to_date(plan)
        if plan.copies:
            self._caches.copy_rows(plan.copies, self._row_states.source_lengths, staging)
            self._row_states.copied(plan.copies)
        for batch, encoded in self._encoder.encode(plan.encodes, staging):
            lengths = [len(item.source_ids) for item in batch]
            step.num_padding += len(lengths) * max(lengths) - sum(lengths)
            self._caches.store(batch, encoded, staging)
            self._row_states.stored(batch)
        if plan.encodes:
            self.stream.record(staging.encoded)
            step.num_encodes = len(plan.encodes)
        step.k = min(plan.top_k or self.limits.top_k, self.limits.vocab_size)
        num_rows = plan.num_rows
        if not num_rows:
            return
        batch_size = self.buckets.size(num_rows)
        if not is_up_to_date:
            self._update_rows(batch_size, plan, staging)
        step.num_candidates = self._step.num_candidates(step.k)
        chosen = self._step.launch(batch_size, step.num_candidates, plan.adjustments, staging)
        staging.download(chosen, num_rows)
        step.num_rows = num_rows
        step.number = self._row_states.stepped(plan)

    def _update_rows(self, batch_size: int, plan: StepPlan | None, staging: Staging) -> None:
        self._row_states.update(
            batch_size, plan, lambda rows, values: self._caches.set_rows(rows, values, staging)
        )

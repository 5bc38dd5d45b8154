"""The decoder step on a device: one set of bindings and one CUDA graph for each batch size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings, launch_options, open_session
from service.domain.plan import Adjustments, RunnerLimits
from service.runtime.batch_sizes import BatchSizeBuckets
from service.runtime.cpu.kv_cache import cache_names
from service.runtime.cuda.array import DeviceArray
from service.runtime.cuda.caches import DeviceCaches
from service.runtime.cuda.staging import Staging
from service.runtime.cuda.stream import CudaStream

CAPTURED_TOP_K = (1, 8, 16)
"""Numbers of candidates that graphs are captured for: greedy search, beams of up to 4 and of up to
8, which need twice their size."""

_TOP_K = (*CAPTURED_TOP_K, 32, 256)
"""Numbers of candidates to which others are rounded up. Each has bindings of its own."""

_NO_GRAPH = "-1"  # ONNX Runtime's id for a run that is neither captured nor replayed


@dataclass
class _BufferBinding:
    """The session, bound to the first rows of all arrays.

    Attributes:
        io: bindings of inputs and outputs.
        chosen: output for the host, [batch_size, 2k + 1]; the next step overwrites it.
        options: run options, with the id of the graph to replay, if any.
        has_adjustments: whether adjustments are bound.
    """

    io: ort.IOBinding
    chosen: DeviceArray
    options: ort.RunOptions
    has_adjustments: bool = False


class DeviceStep:
    """Launches steps: one token for each of the first rows, from and into device memory.

    It does not wait for the steps. Only the thread that made it may use it, since ONNX Runtime
    keeps captured graphs by thread.

    Args:
        bundle: resident bundle.
        settings: settings of the session.
        caches: caches of at least `buckets.largest` rows; bound by address.
        buckets: batch sizes.
        limits: limits of the runner.
        stream: stream on which steps are launched.
        captures: whether to use CUDA graphs; on a GPU only.

    Attributes:
        captured_top_k: numbers of candidates that graphs are captured for, in ascending order.
    """

    def __init__(
        self,
        bundle: Bundle,
        settings: SessionSettings,
        caches: DeviceCaches,
        buckets: BatchSizeBuckets,
        limits: RunnerLimits,
        stream: CudaStream,
        *,
        captures: bool,
    ) -> None:
        self._stream = stream
        self._max_rows = buckets.largest
        self._caches = caches
        self._cache_names = cache_names(bundle.config.num_decoder_layers)
        self._token_groups = bundle.token_groups
        self._settings = settings
        self._no_graph = launch_options(settings, _NO_GRAPH)
        self._vocab_size = limits.vocab_size
        self.captured_top_k = sorted({min(k, limits.vocab_size) for k in CAPTURED_TOP_K})
        self._graphs: dict[tuple[int, int], str] = {}
        if captures:
            sizes = [(batch_size, k) for k in self.captured_top_k for batch_size in buckets.sizes]
            self._graphs = {size: str(number) for number, size in enumerate(sizes, 1)}
        self._bindings: dict[tuple[int, int], _BufferBinding] = {}
        # Without adjustments, 0 is added to a logit: an operator on an empty array can't be
        # captured. These arrays stay in place, like all arrays that a captured graph reads.
        self._nothing = {
            "adjust_rows": stream.zeros([1], np.int64),
            "adjust_token_ids": stream.zeros([1], np.int64),
            "adjust_values": stream.zeros([1], np.float32),
        }
        self._session = open_session(bundle, bundle.decoder_step_path, settings, captures=captures)

    def num_candidates(self, k: int) -> int:
        """Number of candidates to compute for k, at most the size of the vocabulary."""
        return min(next((most for most in _TOP_K if most >= k), k), self._vocab_size)

    def capture(self) -> int:
        """Capture all graphs, the largest first; returns their number.

        ONNX Runtime runs the step once, then captures it, then replays it. No row is running, so
        these steps change no state. Without graphs, all rows step once, to detect a lack of memory.
        """
        largest = self._max_rows, self.captured_top_k[-1]
        for batch_size, k in sorted(self._graphs, reverse=True) or [largest]:
            self._run(self._binding(batch_size, k))
        return len(self._graphs)

    def launch(
        self, batch_size: int, k: int, adjustments: Adjustments, staging: Staging
    ) -> DeviceArray:
        """Launch a step.

        Args:
            batch_size: number of rows that step.
            k: number of candidates for each row.
            adjustments: additions to the logits.
            staging: staging memory of this step.

        Returns:
            [batch_size, 2k + 1] on the device: the candidates' ids, their logits, the log-sum-exp.
        """
        binding = self._binding(batch_size, k)
        if len(adjustments.rows):
            binding.has_adjustments = True
            names = ("rows", "token_ids", "values")
            arrays = staging.upload(*(getattr(adjustments, name) for name in names))
            for name, array in zip(names, arrays, strict=True):
                array.bind(binding.io.bind_input, f"adjust_{name}")
        elif binding.has_adjustments:
            self._bind_nothing(binding.io)
            binding.has_adjustments = False
        self._run(binding)
        return binding.chosen

    def _run(self, binding: _BufferBinding) -> None:
        options = self._no_graph if binding.has_adjustments else binding.options
        self._session.run_with_iobinding(binding.io, options)

    def _binding(self, batch_size: int, k: int) -> _BufferBinding:
        return self._bindings.get((batch_size, k)) or self._bind(batch_size, k)

    def _bind(self, batch_size: int, k: int) -> _BufferBinding:
        io = self._session.io_binding()
        caches, shape = self._caches, self._caches.shape
        constants = {
            "source_buffer_length": np.array(shape.max_source, np.int32),
            "top_k": np.array([k]),
        }
        if not shape.is_recurrent:
            constants["total_sequence_length"] = np.array(shape.max_target, np.int32)
        if self._token_groups:
            constants["top_groups"] = np.array([min(k, self._token_groups)])
        for name, array in constants.items():
            io.bind_cpu_input(name, array)
        for name, state in caches.states.items():
            state.bind(io.bind_input, name, (batch_size,))
            if name != "source_lengths":
                state.bind(io.bind_output, f"next_{name}", (batch_size,))
        for number, name in enumerate(shape.past_names):
            past = f"past_{name}", f"present_{name}"
            self._bind_cache(io, caches.past, number, batch_size, *past)
        for number, name in enumerate(self._cache_names):
            for cache, names in (
                (caches.cross_attention, (f"cross_{name}", f"present_cross_{name}")),
                (caches.cross_last, (f"cross_last_{name}",)),
            ):
                self._bind_cache(io, cache, number, batch_size, *names)
        chosen = self._stream.zeros((batch_size, 2 * k + 1), np.float32)
        chosen.bind(io.bind_output, "chosen")
        self._bind_nothing(io)
        options = self._no_graph
        if (batch_size, k) in self._graphs:
            options = launch_options(self._settings, self._graphs[batch_size, k])
        binding = _BufferBinding(io, chosen, options)
        self._bindings[batch_size, k] = binding
        return binding

    def _bind_nothing(self, io: ort.IOBinding) -> None:
        for name, array in self._nothing.items():
            array.bind(io.bind_input, name)

    def _bind_cache(
        self, io: ort.IOBinding, cache: DeviceArray, number: int, batch_size: int, *names: str
    ) -> None:
        """Bind the first rows of array `number` as an input and, if named, as an output."""
        row_shape = cache.shape[2:]
        start = number * int(np.prod(cache.shape[1:]))
        for name, bind in zip(names, (io.bind_input, io.bind_output), strict=False):
            cache.bind(bind, name, (batch_size, *row_shape), start)

"""Runs a bundle's graphs with ONNX Runtime: what a `StepPlan` says, on tensors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.bundle import Bundle
from service.errors import StartupError
from service.kv_cache import KVCache
from service.plan import EncodeItem, RunnerLimits, StepOutput, StepPlan

Array = npt.NDArray[Any]


class OnnxRunner:
    """The `ModelRunner` of a bundle. Not for use by two threads at once.

    Args:
        bundle: what to run.
        device: "cpu" or "cuda".
        max_rows: rows that can step at once; memory grows with it (`KVCache.bytes_needed`).
        max_source_positions, max_target_positions: lower limits than the bundle's, for less memory.
        intra_op_threads: threads that share one operator; None for one a usable core.
        spinning: let idle threads wait for work actively: faster steps, busier cores.

    Raises:
        StartupError: the device or the processor can't run this bundle; says what to do.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        device: str = "cpu",
        max_rows: int = 64,
        max_source_positions: int | None = None,
        max_target_positions: int | None = None,
        intra_op_threads: int | None = None,
        spinning: bool = True,
    ) -> None:
        providers = _providers(bundle, device)
        options = _session_options(intra_op_threads, spinning)
        self._limits = RunnerLimits(
            max_rows=max_rows,
            max_source_positions=max_source_positions or bundle.max_source_positions,
            max_target_positions=max_target_positions or bundle.max_target_positions,
            top_k=bundle.top_k,
            vocab_size=bundle.config.vocab_size,
        )
        self._encoder = _Encoder(bundle, options, providers)
        dtype = np.float16 if bundle.precision == "fp16" else np.float32
        self._cache = KVCache(
            bundle.config,
            max_rows=max_rows,
            max_source=self._limits.max_source_positions,
            max_target=self._limits.max_target_positions,
            dtype=dtype,
        )
        self._step = _DecoderStep(bundle, options, providers, self._cache, self._limits)

    @property
    def limits(self) -> RunnerLimits:
        """What this runner can hold."""
        return self._limits

    def execute(self, plan: StepPlan) -> StepOutput:
        """Carry out `plan`: copies, encodes, one step."""
        if plan.copies:
            self._cache.copy_rows(plan.copies)
        start = time.perf_counter()
        if plan.encodes:
            self._encoder.encode(plan.encodes, self._cache)
        encoded = time.perf_counter()
        top_ids, top_logits, log_sum_exp = self._step.run(plan)
        stepped = time.perf_counter()
        return StepOutput(
            top_ids=top_ids,
            top_logits=top_logits,
            log_sum_exp=log_sum_exp,
            encode_seconds=encoded - start,
            step_seconds=stepped - encoded,
        )

    def close(self) -> None:
        """Free sessions and memory."""
        del self._encoder, self._step, self._cache


class _Encoder:
    """The encoder session: sources in, rows of the cache filled."""

    def __init__(self, bundle: Bundle, options: ort.SessionOptions, providers: list[Any]) -> None:
        self._session = ort.InferenceSession(bundle.encoder_path, options, providers=providers)
        self._names = [
            f"cross_{kind}_{layer}"
            for layer in range(bundle.config.num_decoder_layers)
            for kind in ("key", "value")
        ]
        self._pad_id = bundle.config.pad_id

    def encode(self, items: Sequence[EncodeItem], cache: KVCache) -> None:
        lengths = np.array([len(item.source_ids) for item in items], np.int32)
        source_ids = np.full((len(items), int(lengths.max())), self._pad_id, np.int64)
        for row, item in enumerate(items):
            source_ids[row, : len(item.source_ids)] = item.source_ids
        feeds = {"source_ids": source_ids, "source_lengths": lengths}
        keys_values = self._session.run(self._names, feeds)
        for batch_row, item in enumerate(items):
            for row in item.rows:
                cache.write_source(row, keys_values, batch_row, len(item.source_ids))


class _DecoderStep:
    """The decoder-step session, bound by pointer to the first rows of the cache."""

    def __init__(
        self,
        bundle: Bundle,
        options: ort.SessionOptions,
        providers: list[Any],
        cache: KVCache,
        limits: RunnerLimits,
    ) -> None:
        self._session = ort.InferenceSession(bundle.decoder_step_path, options, providers=providers)
        rows, k = limits.max_rows, limits.top_k
        self._token_ids = np.zeros(rows, np.int64)
        self._positions = np.zeros(rows, np.int32)
        self._buffer_length = np.array(limits.max_target_positions, np.int32)
        self._top_ids = np.empty((rows, k), np.int64)
        self._top_logits = np.empty((rows, k), np.float32)
        self._log_sum_exp = np.empty(rows, np.float32)
        self._inputs: dict[str, Array] = {
            "token_ids": self._token_ids,
            "positions": self._positions,
            "source_lengths": cache.source_lengths,
        }
        self._outputs: dict[str, Array] = {
            "top_ids": self._top_ids,
            "top_logits": self._top_logits,
            "log_sum_exp": self._log_sum_exp,
        }
        for i in range(2 * bundle.config.num_decoder_layers):
            name = f"{('key', 'value')[i % 2]}_{i // 2}"
            self._inputs[f"past_{name}"] = cache.self_attention[i]
            self._inputs[f"cross_{name}"] = cache.cross_attention[i]
            self._inputs[f"cross_last_{name}"] = cache.cross_last[i]
            self._outputs[f"present_{name}"] = cache.self_attention[i]
            self._outputs[f"present_cross_{name}"] = cache.cross_attention[i]
        # One binding a row count: rows come and go at any step, and binding takes longer than a
        # look-up. A binding holds pointers, no data.
        self._bindings: dict[int, ort.IOBinding] = {}

    def run(self, plan: StepPlan) -> tuple[Array, Array, Array]:
        rows = plan.num_rows
        if rows:
            binding = self._bindings.get(rows) or self._bind(rows)
            self._token_ids[:rows] = plan.token_ids
            self._positions[:rows] = plan.positions
            adjustments = plan.adjustments
            for name, values in (
                ("adjust_rows", adjustments.rows),
                ("adjust_token_ids", adjustments.token_ids),
                ("adjust_values", adjustments.values),
            ):
                binding.bind_cpu_input(name, values)
            self._session.run_with_iobinding(binding)
        # Copies: the next step writes into the same arrays.
        return (
            self._top_ids[:rows].copy(),
            self._top_logits[:rows].copy(),
            self._log_sum_exp[:rows].copy(),
        )

    def _bind(self, rows: int) -> ort.IOBinding:
        binding = self._session.io_binding()
        total = self._buffer_length
        binding.bind_input(
            "total_sequence_length", "cpu", 0, total.dtype, total.shape, total.ctypes.data
        )
        for bind, arrays in (
            (binding.bind_input, self._inputs),
            (binding.bind_output, self._outputs),
        ):
            for name, array in arrays.items():
                shape = (rows, *array.shape[1:])
                bind(name, "cpu", 0, array.dtype, shape, array.ctypes.data)
        self._bindings[rows] = binding
        return binding


def _providers(bundle: Bundle, device: str) -> list[Any]:
    if device == "cpu":
        return ["CPUExecutionProvider"]
    if device != "cuda":
        raise StartupError(f"device must be cpu or cuda, not {device!r}")
    if bundle.precision != "fp16":
        raise StartupError(
            f"{bundle.path} is an {bundle.precision} bundle, which the GPU does not run: "
            f"make one with `dragoman export CHECKPOINT --precision fp16`, or use --device cpu"
        )
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise StartupError(
            "this ONNX Runtime has no CUDA provider: install dragoman[gpu] instead of "
            "dragoman[cpu], or use --device cpu"
        )
    return ["CUDAExecutionProvider", "CPUExecutionProvider"]


def _session_options(intra_op_threads: int | None, spinning: bool) -> ort.SessionOptions:
    options = ort.SessionOptions()
    if intra_op_threads is not None:
        options.intra_op_num_threads = intra_op_threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spinning else "0")
    return options

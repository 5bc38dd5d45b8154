"""The model runner of a CPU: carries out step plans with ONNX Runtime."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.bundle import Bundle, BundleError
from model.sessions import SessionSettings, open_session
from service.errors import StartupError
from service.runtime.cpu.kv_cache import CacheShape, KVCache
from service.runtime.plan import (
    Adjustments,
    EncodedBatch,
    EncodedSource,
    EncodeItem,
    RunnerLimits,
    StepOutput,
    StepPlan,
)
from service.runtime.source_batches import padded, similar_lengths

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Graphs:
    """Sessions of a bundle's two graphs.

    Attributes:
        encoder: sources in, cross-attention keys and values out.
        decoder_step: one token for every row.
    """

    encoder: ort.InferenceSession
    decoder_step: ort.InferenceSession

    @classmethod
    def open(cls, bundle: Bundle, settings: SessionSettings) -> Graphs:
        """Open both.

        Raises:
            StartupError: this device can't run the bundle; says what to do.
        """
        try:
            return cls(
                open_session(bundle, bundle.encoder_path, settings),
                open_session(bundle, bundle.decoder_step_path, settings),
            )
        except BundleError as exc:
            raise StartupError(str(exc)) from exc


class OnnxRunner:
    """The `ModelRunner` of a bundle. Not for use by two threads at once, but for `encode`.

    On a CPU, a row's outputs are the same bits whatever the other rows are, in fp32 and int8.

    Args:
        bundle: what to run.
        max_rows: rows that can step at once; memory grows with it.
        max_source_positions, max_target_positions: lower limits than the bundle's own.
        top_k: candidates of each row where the plan names no number; None for the bundle's own.
        intra_op_threads: threads that share one operator; None for one a core.
        sessions: all session settings, in place of `intra_op_threads`.
        graphs: open sessions, in place of either.
        cache: caches shared with another runner that never runs at the same time.

    Raises:
        StartupError: this device can't run the bundle, or has too little memory; says what to do.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        max_rows: int = 64,
        max_source_positions: int | None = None,
        max_target_positions: int | None = None,
        top_k: int | None = None,
        intra_op_threads: int | None = None,
        sessions: SessionSettings | None = None,
        graphs: Graphs | None = None,
        cache: KVCache | None = None,
    ) -> None:
        self._limits = limits_of(
            bundle, max_rows, max_source_positions, max_target_positions, top_k
        )
        shape = cache_shape(bundle, self._limits)
        self._cache_bytes = shape.num_bytes
        settings = sessions or SessionSettings(intra_op_threads=intra_op_threads)
        # Before the caches, since opening finds wrong sizes.
        self._graphs = graphs or Graphs.open(bundle, settings)
        self.cache = cache or allocate(shape, [max_rows])[0]
        self._encoder = _Encoder(bundle, self._graphs.encoder)
        self._step = _DecoderStep(bundle, self._graphs.decoder_step, self.cache, self._limits)

    @property
    def limits(self) -> RunnerLimits:
        """What this runner can hold."""
        return self._limits

    @property
    def cache_bytes(self) -> int:
        """Size of the caches: an upper bound of the memory that they take."""
        return self._cache_bytes

    @property
    def encoder_session(self) -> ort.InferenceSession:
        """The encoder, for scoring while nothing executes."""
        return self._graphs.encoder

    def execute(self, plan: StepPlan) -> StepOutput:
        """Carry out `plan`: copies, then encodes, then one step."""
        if plan.copies:
            self.cache.copy_rows(plan.copies)
        start = time.perf_counter()
        num_padding = self._encoder.store(plan.encodes, self.cache) if plan.encodes else 0
        encoded = time.perf_counter()
        top_ids, top_logits, log_sum_exp = self._step.run(plan)
        stepped = time.perf_counter()
        encode_seconds, step_seconds = encoded - start, stepped - encoded
        return StepOutput(
            top_ids, top_logits, log_sum_exp, encode_seconds, step_seconds, num_padding
        )

    def encode(self, sources: Sequence[tuple[int, ...]]) -> EncodedBatch:
        """Encode ahead of admission; touches no cache."""
        return self._encoder.encode(sources)

    def close(self) -> None:
        """Free sessions and memory."""
        del self._encoder, self._step, self._graphs, self.cache


def limits_of(
    bundle: Bundle,
    max_rows: int,
    max_source_positions: int | None = None,
    max_target_positions: int | None = None,
    top_k: int | None = None,
) -> RunnerLimits:
    """What a runner of the bundle can hold; None for the bundle's own limits."""
    return RunnerLimits(
        max_rows=max_rows,
        max_source_positions=max_source_positions or bundle.max_source_positions,
        max_target_positions=max_target_positions or bundle.max_target_positions,
        top_k=min(top_k or bundle.top_k, bundle.config.vocab_size),
        vocab_size=bundle.config.vocab_size,
    )


def cache_shape(bundle: Bundle, limits: RunnerLimits) -> CacheShape:
    """The shape of a runner's caches, known before anything is allocated."""
    return CacheShape(
        num_layers=bundle.config.num_decoder_layers,
        num_heads=bundle.config.num_heads,
        head_dim=bundle.config.head_dim,
        max_rows=limits.max_rows,
        max_source=limits.max_source_positions,
        max_target=limits.max_target_positions,
        dtype="float16" if bundle.precision == "fp16" else "float32",
    )


def allocate(shape: CacheShape, rows: Sequence[int]) -> list[KVCache]:
    """Allocate caches that together have this shape, with `rows` rows each.

    Raises:
        StartupError: this machine does not give the memory.
    """
    try:
        return [KVCache(dataclasses.replace(shape, max_rows=max_rows)) for max_rows in rows]
    except (OSError, OverflowError) as exc:  # the address space is limited, or the sizes absurd
        raise StartupError(
            f"the attention caches need {shape.num_bytes:,} bytes for {shape.max_rows} rows, "
            f"which this machine does not give: set fewer rows (--max-rows)"
        ) from exc


def _cache_names(bundle: Bundle) -> list[str]:
    return [
        f"{kind}_{layer}"
        for layer in range(bundle.config.num_decoder_layers)
        for kind in ("key", "value")
    ]


class _Encoder:
    """The encoder session: sources in, rows of the cache filled."""

    def __init__(self, bundle: Bundle, session: ort.InferenceSession) -> None:
        self._session = session
        self._outputs = [f"cross_{name}" for name in _cache_names(bundle)]
        self._pad_id = bundle.config.pad_id

    def store(self, items: Sequence[EncodeItem], cache: KVCache) -> int:
        """Encode what is not encoded yet, and store all; the number of padding positions."""
        missing = [item for item in items if item.encoded is None]
        encoded = self.encode([item.source_ids for item in missing])
        for item, source in zip(missing, encoded.sources, strict=True):
            cache.write_source(item.rows, source, len(item.source_ids))
        for item in items:
            if item.encoded is not None:
                cache.write_source(item.rows, item.encoded, len(item.source_ids))
        return encoded.num_padding

    def encode(self, sources: Sequence[tuple[int, ...]]) -> EncodedBatch:
        start = time.perf_counter()
        encoded: dict[int, EncodedSource] = {}
        num_padding = 0
        for batch in similar_lengths([len(source_ids) for source_ids in sources]):
            source_ids, lengths = padded([sources[number] for number in batch], self._pad_id)
            feeds = {"source_ids": source_ids, "source_lengths": lengths}
            keys_values = self._session.run(self._outputs, feeds)
            encoded.update((n, EncodedSource(keys_values, row)) for row, n in enumerate(batch))
            num_padding += source_ids.size - int(lengths.sum())
        ordered = [encoded[number] for number in range(len(sources))]
        return EncodedBatch(ordered, time.perf_counter() - start, num_padding)


@dataclass(frozen=True)
class _Choices:
    """Output arrays of a step's best k tokens: [max_rows, k]."""

    top_k: Array
    top_ids: Array
    top_logits: Array


@dataclass
class _StepBinding:
    """The session's inputs and outputs, bound to the first n rows of all arrays."""

    io: ort.IOBinding
    has_adjustments: bool


class _DecoderStep:
    """The decoder-step session, bound by pointer to the first rows of the cache."""

    def __init__(
        self, bundle: Bundle, session: ort.InferenceSession, cache: KVCache, limits: RunnerLimits
    ) -> None:
        self._session = session
        self._limits = limits
        self._token_groups = bundle.token_groups
        rows = limits.max_rows
        self._token_ids = np.zeros(rows, np.int64)
        self._positions = np.zeros(rows, np.int32)
        # The length of the buffer and not of the longest row: the same in every step.
        self._buffer_length = np.array(limits.max_target_positions, np.int32)
        self._choices: dict[int, _Choices] = {}
        self._log_sum_exp = np.empty(rows, np.float32)
        self._inputs: dict[str, Array] = {
            "token_ids": self._token_ids,
            "positions": self._positions,
            "source_lengths": cache.source_lengths,
        }
        self._outputs: dict[str, Array] = {"log_sum_exp": self._log_sum_exp}
        for i, name in enumerate(_cache_names(bundle)):
            self._inputs[f"past_{name}"] = cache.self_attention[i]
            self._inputs[f"cross_{name}"] = cache.cross_attention[i]
            self._inputs[f"cross_last_{name}"] = cache.cross_last[i]
            self._outputs[f"present_{name}"] = cache.self_attention[i]
            self._outputs[f"present_cross_{name}"] = cache.cross_attention[i]
        self._constants: dict[str, Array] = {"total_sequence_length": self._buffer_length}
        if bundle.is_resident:  # made for a GPU; run on a CPU to check it
            self._inputs["running"] = np.ones(rows, np.int32)
            self._constants["source_buffer_length"] = np.array(
                limits.max_source_positions, np.int32
            )
        # Kept for each (rows, k): binding all arrays of a large model takes longer than a step of a
        # small one. A binding holds pointers, no data.
        self._bindings: dict[tuple[int, int], _StepBinding] = {}

    def run(self, plan: StepPlan) -> tuple[Array, Array, Array]:
        rows = plan.num_rows
        k = min(plan.top_k or self._limits.top_k, self._limits.vocab_size)
        choices = self._choices.get(k) or self._prepare(k)
        if rows:
            self._token_ids[:rows] = plan.token_ids
            self._positions[:rows] = plan.positions
            binding = self._bindings.get((rows, k)) or self._bind(rows, choices)
            if len(plan.adjustments.rows) or binding.has_adjustments:
                _bind_adjustments(binding, plan.adjustments)
            self._session.run_with_iobinding(binding.io)
        # Copied: the next step writes into the same arrays.
        return (
            choices.top_ids[:rows].copy(),
            choices.top_logits[:rows].copy(),
            self._log_sum_exp[:rows].copy(),
        )

    def _prepare(self, k: int) -> _Choices:
        shape = (self._limits.max_rows, k)
        choices = _Choices(np.array([k]), np.empty(shape, np.int64), np.empty(shape, np.float32))
        self._choices[k] = choices
        return choices

    def _bind(self, rows: int, choices: _Choices) -> _StepBinding:
        io = self._session.io_binding()
        constants = {**self._constants, "top_k": choices.top_k}
        if self._token_groups:
            constants["top_groups"] = np.minimum(choices.top_k, self._token_groups)
        for name, array in constants.items():
            io.bind_cpu_input(name, array)
        chosen = {"top_ids": choices.top_ids, "top_logits": choices.top_logits}
        outputs = {**chosen, **self._outputs}
        for bind, arrays in ((io.bind_input, self._inputs), (io.bind_output, outputs)):
            for name, array in arrays.items():
                shape = (rows, *array.shape[1:])
                bind(name, "cpu", 0, array.dtype, shape, array.ctypes.data)
        binding = _StepBinding(io, has_adjustments=False)
        _bind_adjustments(binding, Adjustments.none())
        self._bindings[rows, int(choices.top_k[0])] = binding
        return binding


def _bind_adjustments(binding: _StepBinding, adjustments: Adjustments) -> None:
    binding.io.bind_cpu_input("adjust_rows", adjustments.rows)
    binding.io.bind_cpu_input("adjust_token_ids", adjustments.token_ids)
    binding.io.bind_cpu_input("adjust_values", adjustments.values)
    binding.has_adjustments = len(adjustments.rows) > 0

"""The model runner of a CPU: carries out step plans with ONNX Runtime."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import onnxruntime as ort

from model.bundle.bundle import Bundle
from model.bundle.manifest import BundleError
from model.bundle.sessions import SessionSettings, open_session
from service.domain.plan import (
    EncodedBatch,
    EncodedSource,
    EncodeItem,
    RunnerLimits,
    StepOutput,
    StepPlan,
)
from service.errors import StartupError
from service.runtime.cpu.kv_cache import (
    CacheShape,
    KVCache,
    cache_names,
    cache_shape,
    limits_of,
)
from service.runtime.cpu.row_lists import ListGraphs, RowLists
from service.runtime.cpu.step import DecoderStep, ListedStep
from service.runtime.source_batches import padded, similar_lengths

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Graphs:
    """Sessions of a bundle's graphs.

    Attributes:
        encoder: sources in, cross-attention keys and values out.
        decoder_step: one token for every row.
        lists: the bundle's shortlist and its graphs; None without one.
    """

    encoder: ort.InferenceSession
    decoder_step: ort.InferenceSession
    lists: ListGraphs | None = None

    @classmethod
    def open(cls, bundle: Bundle, settings: SessionSettings) -> Graphs:
        """Open all sessions.

        Raises:
            StartupError: this device can't run the bundle; says what to do.
        """
        try:
            return cls(
                open_session(bundle, bundle.encoder_path, settings),
                open_session(bundle, bundle.decoder_step_path, settings),
                ListGraphs.open(bundle, settings),
            )
        except BundleError as exc:
            raise StartupError(str(exc)) from exc


class OnnxRunner:
    """The `ModelRunner` of a bundle. Except for `encode`, not for two threads at once.

    On a CPU, a row's outputs do not depend on the other rows, bit for bit, in fp32 and int8.

    Args:
        bundle: bundle to run.
        max_rows: number of rows; memory grows with it. As many again are for background requests.
        intra_op_threads: number of threads for one operator; None for one for each core.
        sessions: all session settings, in place of `intra_op_threads`.
        graphs: open sessions, in place of `intra_op_threads` and `sessions`.
        cache: caches shared with another runner that never runs at the same time.

    Raises:
        StartupError: this device can't run the bundle, or has too little memory; says what to do.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        max_rows: int = 64,
        intra_op_threads: int | None = None,
        sessions: SessionSettings | None = None,
        graphs: Graphs | None = None,
        cache: KVCache | None = None,
    ) -> None:
        self._limits = limits_of(bundle, max_rows, max_rows)
        shape = cache_shape(bundle, self._limits)
        self._cache_bytes = shape.num_bytes
        settings = sessions or SessionSettings(intra_op_threads=intra_op_threads)
        # Before the caches, since opening detects wrong sizes.
        self._graphs = graphs or Graphs.open(bundle, settings)
        self.cache = cache or allocate(shape, [self._limits.num_rows])[0]
        self._encoder = _Encoder(bundle, self._graphs.encoder)
        self._step = self._make_step(bundle)

    def _make_step(self, bundle: Bundle) -> DecoderStep | ListedStep:
        graphs, cache, limits = self._graphs, self.cache, self._limits
        whole = DecoderStep(bundle, graphs.decoder_step, cache, limits)
        if graphs.lists is None:
            return whole
        if cache.lists is None:
            cache.lists = RowLists(graphs.lists, limits.num_rows)
        listed = DecoderStep(bundle, graphs.lists.step, cache, limits, cache.lists)
        return ListedStep(whole, listed, cache.lists, cache)

    @property
    def limits(self) -> RunnerLimits:
        """Limits of this runner."""
        return self._limits

    @property
    def cache_bytes(self) -> int:
        """Size of the caches in bytes, an upper bound of their memory."""
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

    def follow_up(self) -> StepOutput:
        """Run a step after the last one, in which each row continues with its best token."""
        start = time.perf_counter()
        top_ids, top_logits, log_sum_exp = self._step.follow_up()
        return StepOutput(top_ids, top_logits, log_sum_exp, 0.0, time.perf_counter() - start)

    def encode(self, sources: Sequence[tuple[int, ...]]) -> EncodedBatch:
        """Encode sources before their requests join; uses no cache."""
        return self._encoder.encode(sources)

    def close(self) -> None:
        """Free sessions and memory."""
        del self._encoder, self._step, self._graphs, self.cache


def allocate(shape: CacheShape, rows: Sequence[int]) -> list[KVCache]:
    """Allocate caches that together have this shape, with `rows` rows each.

    Raises:
        StartupError: this machine has too little memory.
    """
    try:
        return [KVCache(dataclasses.replace(shape, max_rows=max_rows)) for max_rows in rows]
    except (OSError, OverflowError) as exc:  # the address space is limited, or the sizes absurd
        raise StartupError(
            f"the attention caches need {shape.num_bytes:,} bytes for {shape.max_rows // 2} rows, "
            f"and as many in the background, which this machine does not give: set fewer rows "
            f"(--max-rows)"
        ) from exc


class _Encoder:
    """The encoder session: sources in, rows of the cache filled."""

    def __init__(self, bundle: Bundle, session: ort.InferenceSession) -> None:
        self._session = session
        self._outputs = [f"cross_{name}" for name in cache_names(bundle.config.num_decoder_layers)]
        self._pad_id = bundle.config.pad_id
        self._kept = bundle.config.num_memory_rows

    def store(self, items: Sequence[EncodeItem], cache: KVCache) -> int:
        """Encode the sources that are not encoded, store all; returns the padding positions."""
        missing = [item for item in items if item.encoded is None]
        encoded = self.encode([item.source_ids for item in missing])
        for item, source in zip(missing, encoded.sources, strict=True):
            cache.write_source(item.rows, source, self._kept(len(item.source_ids)))
        for item in items:
            if item.encoded is not None:
                cache.write_source(item.rows, item.encoded, self._kept(len(item.source_ids)))
            if cache.lists is not None:
                cache.lists.begin(
                    item.rows, None if item.exact else item.source_ids, item.added_ids
                )
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

"""Turns an engine's events into the metrics of its model."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from service.batching.events import Iteration
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    ScoringRequest,
)
from service.engine.admission import Refusal
from service.engine.interface import EngineObserver
from service.observability.metrics import ServerMetrics
from service.runtime.batch_sizes import BatchSizeBuckets


class DeviceFigures(Protocol):
    """The figures of a GPU runner (`service.runtime.cuda.runner.DeviceRunner`) for metrics."""

    @property
    def buckets(self) -> BatchSizeBuckets:
        """The batch sizes at which it steps."""
        ...

    @property
    def num_captures(self) -> int:
        """Number of captured CUDA graphs."""
        ...

    @property
    def cache_bytes(self) -> int:
        """Size of the caches, in bytes."""
        ...

    @property
    def arena_bytes(self) -> int:
        """Other memory allocated since the start, in bytes; 0 where it can't be read."""
        ...


class ModelMetrics(EngineObserver):
    """Turns an engine's events into metrics of its model.

    Labelled metrics are looked up once, since a step of a small model takes well under a
    millisecond.

    A new version of a model counts nothing until it is current. A replaced version still counts the
    sentences that it finishes, but no longer sets gauges.

    Args:
        metrics: the server's metrics.
        model: name of the model.
        is_current: whether the engine gets the model's calls from the start, not only from
            `on_current` on.
    """

    def __init__(self, metrics: ServerMetrics, model: str, *, is_current: bool = True) -> None:
        self._model = model
        self._counts = self._is_current = is_current
        self._facts: list[Callable[[], None]] = []  # called by `on_current`
        self._set_info = functools.partial(metrics.set_model, model=model)
        self._processes = metrics.processes
        self._queue_duration = metrics.queue_duration.labels(model)
        self._first_token = metrics.first_token.labels(model)
        self._compute_duration = metrics.compute_duration.labels(model)
        self._encode_duration = metrics.encode_duration.labels(model)
        self._step_duration = metrics.step_duration.labels(model)
        self._step_rows = metrics.step_rows.labels(model)
        self._encoded = metrics.encoded.labels(model)
        self._score_duration = metrics.score_duration.labels(model)
        self._score_queue_duration = metrics.score_queue_duration.labels(model)
        self._scored = metrics.scored.labels(model)
        self._rows = metrics.rows.labels(model)
        self._rows_used = metrics.rows_used.labels(model)
        self._waiting = metrics.waiting.labels(model)
        self._held_back = metrics.held_back.labels(model)
        self._stalled = metrics.stalled.labels(model)
        self._max_waiting = metrics.max_waiting.labels(model)
        self._cache_bytes = metrics.cache_bytes.labels(model)
        self._source_tokens = metrics.source_tokens.labels(model)
        self._target_tokens = metrics.target_tokens.labels(model)
        self._padding_tokens = metrics.padding_tokens.labels(model)
        self._wasted_tokens = metrics.wasted_tokens.labels(model)
        self._padded_size: Callable[[int], int] | None = None  # on a GPU only
        self._padded_rows = metrics.padded_rows.labels(model)
        self._graph_captures = metrics.graph_captures.labels(model)
        self._device_memory = functools.partial(metrics.device_memory.labels, model=model)
        self._refused = {reason: metrics.refused.labels(model, reason.value) for reason in Refusal}
        # All series exist from the start: a rate over one that appears late misses its first event.
        self._finished = {
            reason: metrics.finished.labels(model, reason.value) for reason in FinishReason
        }

        self._show(lambda: self._stalled.set(0))

    def describe(self, **labels: str) -> None:
        """Set the labels of `dragoman_model_info`."""
        self._show(functools.partial(self._set_info, **labels))

    def set_device(self, device: DeviceFigures) -> None:
        """Set the metrics of a runner on a GPU."""
        self._padded_size = device.buckets.size
        num_captures, cache_bytes = device.num_captures, device.cache_bytes
        alive = weakref.ref(device)  # these metrics outlive it

        def show() -> None:
            self._graph_captures.set(num_captures)
            self._device_memory(use="cache").set(cache_bytes)
            self._device_memory(use="arena").set_function(
                lambda: 0.0 if (now := alive()) is None else float(now.arena_bytes)
            )

        self._show(show)

    def set_processes(self, *pids: int) -> None:
        """Add the figures of the processes that the model runs in."""
        self._show(lambda: self._processes.add(self._model, pids))

    def set_capacity(self, rows: int, max_waiting: int, cache_bytes: int) -> None:
        """Set the gauges of the engine's capacity."""
        self._show(lambda: self._rows.set(rows))
        self._show(lambda: self._max_waiting.set(max_waiting))
        self._show(lambda: self._cache_bytes.set(cache_bytes))

    def _show(self, fact: Callable[[], None]) -> None:
        self._facts.append(fact)
        if self._is_current:
            fact()

    def on_current(self) -> None:
        """Set the gauges of this version."""
        if self._is_current:
            return
        self._counts = self._is_current = True
        for fact in self._facts:
            fact()

    def on_retired(self) -> None:
        """Set the gauges to 0 until a version is current again."""
        self._is_current = False
        self._processes.remove(self._model)
        for gauge in (self._rows_used, self._waiting, self._held_back, self._cache_bytes):
            gauge.set(0)

    def on_refused(self, reason: Refusal) -> None:
        """Count a refused call."""
        self._refused[reason].inc()

    def on_iterations(self, iterations: Sequence[Iteration]) -> None:
        """Observe encodes, steps and scores, and the length of the queue after them."""
        if not self._counts:
            return
        if self._is_current:
            self._waiting.set(iterations[-1].num_waiting)
            self._rows_used.set(iterations[-1].num_running)
        for iteration in iterations:
            if iteration.num_encodes:
                self._encoded.inc(iteration.num_encodes)
                self._encode_duration.observe(iteration.encode_seconds)
            if iteration.num_padding:
                self._padding_tokens.inc(iteration.num_padding)
            if num_rows := iteration.num_stepping:
                if self._padded_size is not None:
                    self._padded_rows.inc(self._padded_size(num_rows) - num_rows)
                self._step_rows.observe(num_rows)
                self._step_duration.observe(iteration.step_seconds)
            if iteration.num_scored:
                self._scored.inc(iteration.num_scored)
                self._score_duration.observe(iteration.score_seconds)

    def on_held_back(self, calls: int) -> None:
        """Set the number of calls with sentences that are not in the queue yet."""
        if self._is_current:
            self._held_back.set(calls)

    def on_finished(
        self,
        result: GenerationResult,
        request: GenerationRequest,
        trace_ids: Mapping[str, str] | None = None,
    ) -> None:
        """Count a finished sentence or score, and observe its times."""
        if not self._counts:
            return
        exemplar = None if trace_ids is None else dict(trace_ids)
        if isinstance(request, ScoringRequest):
            # Scores wait for no row, so their wait does not show a lack of rows.
            self._score_queue_duration.observe(result.queue_seconds, exemplar)
            if result.was_admitted:
                self._source_tokens.inc(len(request.source_ids))
            return
        self._finished[result.finish_reason].inc()
        self._queue_duration.observe(result.queue_seconds, exemplar)
        if not result.was_admitted:  # it ended in the queue: nothing was computed
            return
        if result.first_token_seconds is not None:
            self._first_token.observe(result.first_token_seconds, exemplar)
        self._compute_duration.observe(result.compute_seconds, exemplar)
        tokens = len(result.token_ids)
        self._source_tokens.inc(len(request.source_ids))
        self._target_tokens.inc(tokens)
        if result.finish_reason not in (FinishReason.EOS, FinishReason.LENGTH):
            self._wasted_tokens.inc(tokens)

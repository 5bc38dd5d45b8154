"""An engine's figures as the metrics of its model."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable

from service.decoding.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    ScoringRequest,
)
from service.engine.admission import Refusal
from service.engine.interface import EngineObserver
from service.observability.metrics import ServerMetrics
from service.runtime.plan import DeviceFigures


class ModelMetrics(EngineObserver):
    """Turns an engine's events into metrics of its model.

    Labelled metrics are looked up once, since a step of a small model takes well under a
    millisecond.
    """

    def __init__(self, metrics: ServerMetrics, model: str) -> None:
        self._model = model
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
        metrics.stalled.labels(model).set(0)
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
        # Every reason from the start: a rate over a series that appears late loses its first event.
        self._finished = {
            reason: metrics.finished.labels(model, reason.value) for reason in FinishReason
        }

    def set_device(self, device: DeviceFigures) -> None:
        """Show the figures of a runner on a GPU."""
        self._padded_size = device.buckets.size
        self._graph_captures.set(device.num_captures)
        memory = self._device_memory
        memory(use="cache").set(device.cache_bytes)
        alive = weakref.ref(device)  # these metrics outlive it
        memory(use="arena").set_function(
            lambda: 0.0 if (now := alive()) is None else float(now.arena_bytes)
        )

    def set_process(self, pid: int) -> None:
        """Add the figures of the process that the model runs in."""
        self._processes.add(self._model, pid)

    def set_capacity(self, rows: int, max_waiting: int, cache_bytes: int) -> None:
        """Show what the engine can hold."""
        self._rows.set(rows)
        self._max_waiting.set(max_waiting)
        self._cache_bytes.set(cache_bytes)

    def on_refused(self, reason: Refusal) -> None:
        """A call was refused on arrival."""
        self._refused[reason].inc()

    def on_admitted(self, queue_seconds: float) -> None:
        """A sentence got its rows."""
        self._queue_duration.observe(queue_seconds)

    def on_step(self, rows: int, encodes: int, encode_seconds: float, step_seconds: float) -> None:
        """One iteration: `encodes` sentences encoded, then `rows` rows stepped."""
        if encodes:
            self._encoded.inc(encodes)
            self._encode_duration.observe(encode_seconds)
        if rows:
            if self._padded_size is not None:
                self._padded_rows.inc(self._padded_size(rows) - rows)
            self._step_rows.observe(rows)
            self._step_duration.observe(step_seconds)

    def on_padding(self, tokens: int) -> None:
        """An iteration's encoder computed `tokens` positions that held none."""
        self._padding_tokens.inc(tokens)

    def on_scored(self, count: int, seconds: float) -> None:
        """One iteration scored `count` translations."""
        self._scored.inc(count)
        self._score_duration.observe(seconds)

    def on_queue(self, waiting: int, running: int) -> None:
        """How many wait and how many hold rows."""
        self._waiting.set(waiting)
        self._rows_used.set(running)

    def on_held_back(self, calls: int) -> None:
        """How many calls wait with sentences that are not in the queue yet."""
        self._held_back.set(calls)

    def on_first_token(self, seconds: float) -> None:
        """A sentence got its first token."""
        self._first_token.observe(seconds)

    def on_finished(self, result: GenerationResult, request: GenerationRequest) -> None:
        """A sentence ended, or the scoring of one."""
        if isinstance(request, ScoringRequest):
            # They wait for no row, so that it says nothing of whether there are too few.
            self._score_queue_duration.observe(result.queue_seconds)
            if result.was_admitted:
                self._source_tokens.inc(len(request.source_ids))
            return
        self._finished[result.finish_reason].inc()
        if not result.was_admitted:  # it gave up waiting, and nothing was computed
            self._queue_duration.observe(result.queue_seconds)
            return
        self._compute_duration.observe(result.compute_seconds)
        tokens = len(result.token_ids)
        self._source_tokens.inc(len(request.source_ids))
        self._target_tokens.inc(tokens)
        if result.finish_reason not in (FinishReason.EOS, FinishReason.LENGTH):
            self._wasted_tokens.inc(tokens)

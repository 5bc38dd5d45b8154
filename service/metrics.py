"""Prometheus metrics of one server.

Every server has a registry of its own, so that several can live in one process. Labels are bounded:
methods, gRPC codes, the models that were loaded, finish reasons; never an address or a text.
"""

from __future__ import annotations

import functools
import platform
import weakref
from typing import TYPE_CHECKING

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from service.client_metrics import NUM_CLIENTS, ClientMetrics
from service.gate import Refusal
from service.ladder import Ladder
from service.process_metrics import LogLines, ModelProcesses
from service.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    ScoringRequest,
)

if TYPE_CHECKING:
    from service.device_runner import DeviceRunner

# A `_created` series beside every counter and histogram nearly doubles the number of series, and
# nothing here resets but at a restart, which `process_start_time_seconds` tells.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

# Seconds. A call takes from a millisecond (one word, tiny model) to a minute (pages under load).
_CALL_BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
_STEP_BUCKETS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
)  # fmt: skip
_ROW_BUCKETS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512)


class ServerMetrics:
    """All metrics of a server. `for_model` gives an engine's observer.

    Attributes:
        registry: where they are registered.

    Args:
        max_clients: as for `ClientMetrics`.
    """

    def __init__(self, max_clients: int = NUM_CLIENTS) -> None:
        self.registry = CollectorRegistry()
        self._clients = ClientMetrics(self.registry, max_clients)
        prometheus_client.ProcessCollector(registry=self.registry)
        requests = Counter(
            "dragoman_requests", "Calls finished.", ["method", "code"], registry=self.registry
        )
        request_duration = self._histogram(
            "dragoman_request_duration_seconds",
            "Time from the arrival of a call to its end.",
            ["method"],
            _CALL_BUCKETS,
        )
        in_flight = Gauge(
            "dragoman_requests_in_flight",
            "Calls in progress.",
            ["method"],
            registry=self.registry,
        )
        texts = Counter(
            "dragoman_texts", "Texts answered, by status.", ["code"], registry=self.registry
        )
        # Children by label. To look one up takes longer than to count.
        self._requests = functools.cache(requests.labels)
        self._request_duration = functools.cache(request_duration.labels)
        self._in_flight = functools.cache(in_flight.labels)
        self._texts = functools.cache(texts.labels)
        self.serving = Gauge(
            "dragoman_serving",
            "1 while health says SERVING, 0 while the server starts, drains or a model is stalled.",
            registry=self.registry,
        )
        self._build = Gauge(
            "dragoman_build_info",
            "1, labelled with the versions of what is running.",
            ["version", "onnxruntime", "python"],
            registry=self.registry,
        )
        self._model = Gauge(
            "dragoman_model_info",
            "1 for each model that is loaded, labelled with what it is.",
            ["model", "version", "precision", "device", "source", "target"],
            registry=self.registry,
        )
        self.processes = ModelProcesses(self.registry)
        LogLines(self.registry)
        self._create_engine_metrics()

    def _create_engine_metrics(self) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, ["model", *labels], registry=self.registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, ["model"], registry=self.registry)

        def seconds(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return self._histogram(name, text, ["model"], buckets)

        self.queue_duration = seconds(
            "dragoman_queue_duration_seconds",
            "Time that a sentence waited for a slot, whether it got one or not.",
            _CALL_BUCKETS,
        )
        self.first_token = seconds(
            "dragoman_time_to_first_token_seconds",
            "Time from a sentence's arrival to its first token.",
            _CALL_BUCKETS,
        )
        self.compute_duration = seconds(
            "dragoman_compute_duration_seconds",
            "Time that a sentence held a slot.",
            _CALL_BUCKETS,
        )
        self.encode_duration = seconds(
            "dragoman_encode_duration_seconds",
            "Time of an encode: within an iteration, or beside the steps.",
            _STEP_BUCKETS,
        )
        self.step_duration = seconds(
            "dragoman_step_duration_seconds", "Time of one decoder step.", _STEP_BUCKETS
        )
        self.step_rows = seconds(
            "dragoman_step_rows", "Rows (sentences) that stepped at the same time.", _ROW_BUCKETS
        )
        self.score_duration = seconds(
            "dragoman_score_duration_seconds",
            "Time of scoring, encoder included, in an iteration that scored.",
            _STEP_BUCKETS,
        )
        self.score_queue_duration = seconds(
            "dragoman_score_queue_duration_seconds",
            "Time that a translation waited to be scored, whether it was or not.",
            _CALL_BUCKETS,
        )
        self.scored = counter(
            "dragoman_scored_translations",
            "Given translations that were scored, those of alignments among them.",
        )
        self.encoded = counter("dragoman_encoded_sentences", "Sentences encoded.")
        self.slots = gauge("dragoman_slots", "Slots: rows that can step at the same time.")
        self.slots_used = gauge("dragoman_slots_used", "Slots in use.")
        self.waiting = gauge("dragoman_waiting_sentences", "Sentences waiting for a slot.")
        self.stalled = gauge(
            "dragoman_stalled", "1 while a model has work and makes no progress, otherwise 0."
        )
        self.held_back = gauge(
            "dragoman_held_back_calls",
            "Calls that have more sentences than they may put into the queue at the moment.",
        )
        self.max_waiting = gauge("dragoman_waiting_sentences_limit", "Sentences that may wait.")
        self.cache_bytes = gauge(
            "dragoman_cache_bytes", "Memory reserved for the key and value caches."
        )
        self.device_memory = Gauge(
            "dragoman_device_memory_bytes",
            "Memory of a GPU: of the caches, and of everything else (weights, activations, "
            "captured graphs: the arena).",
            ["model", "use"],
            registry=self.registry,
        )
        self.graph_captures = gauge("dragoman_graph_captures", "CUDA graphs captured at the start.")
        self.padded_rows = counter(
            "dragoman_padded_rows", "Rows that stepped for nobody, to fill up a GPU's batch size."
        )
        self.source_tokens = counter("dragoman_source_tokens", "Tokens read by the model.")
        self.target_tokens = counter("dragoman_target_tokens", "Tokens written by the model.")
        self.refused = counter(
            "dragoman_refused_calls",
            "Calls that a model refused on arrival, before anything was computed: for want of "
            "places, because of the wait, in an overload, or since the deadline could not be met.",
            "reason",
        )
        self.padding_tokens = counter(
            "dragoman_padding_tokens",
            "Positions that the encoder computed beside a sentence's tokens, to fill its batch up.",
        )
        self.wasted_tokens = counter(
            "dragoman_wasted_tokens",
            "Tokens written for sentences that were cancelled, expired or failed.",
        )
        self.finished = counter(
            "dragoman_finished_sentences", "Sentences finished, by reason.", "reason"
        )

    def _histogram(
        self, name: str, text: str, labels: list[str], buckets: tuple[float, ...]
    ) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def set_build(self, version: str, onnxruntime: str) -> None:
        """Say what is running."""
        self._build.labels(version, onnxruntime, platform.python_version()).set(1)

    def call_started(self, method: str) -> None:
        """A call to `method` (one of our own; so the label is bounded) arrived."""
        self._in_flight(method).inc()

    def call_finished(self, method: str, code: str, seconds: float, client: str = "") -> None:
        """The call of `client` ended with the gRPC status `code`."""
        self._clients.call_finished(client, code)
        self._in_flight(method).dec()
        self._requests(method, code).inc()
        self._request_duration(method).observe(seconds)

    def text_finished(self, code: str) -> None:
        """One text was answered with the gRPC status `code`."""
        self._texts(code).inc()

    def set_model(self, **about: str) -> None:
        """Say that a model is loaded, and what it is: the labels of `dragoman_model_info`."""
        self._model.labels(**about).set(1)

    def for_model(self, name: str) -> ModelMetrics:
        """The observer of the engine that runs model `name`."""
        return ModelMetrics(self, name)


class ModelMetrics:
    """An engine's observer (`service.engine.EngineObserver`): its figures as metrics of a model.

    Its children are looked up once, since a step of a small model takes well under a millisecond.
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
        self._slots = metrics.slots.labels(model)
        self._slots_used = metrics.slots_used.labels(model)
        self._waiting = metrics.waiting.labels(model)
        self._held_back = metrics.held_back.labels(model)
        metrics.stalled.labels(model).set(0)
        self._max_waiting = metrics.max_waiting.labels(model)
        self._cache_bytes = metrics.cache_bytes.labels(model)
        self._source_tokens = metrics.source_tokens.labels(model)
        self._target_tokens = metrics.target_tokens.labels(model)
        self._padding_tokens = metrics.padding_tokens.labels(model)
        self._wasted_tokens = metrics.wasted_tokens.labels(model)
        # Of a model on a GPU, and only then.
        self._ladder: Ladder | None = None
        self._padded_rows = metrics.padded_rows.labels(model)
        self._graph_captures = metrics.graph_captures.labels(model)
        self._device_memory = functools.partial(metrics.device_memory.labels, model=model)
        self._refused = {reason: metrics.refused.labels(model, reason.value) for reason in Refusal}
        # Every reason from the start: a rate over a series that appears late loses its first event.
        self._finished = {
            reason: metrics.finished.labels(model, reason.value) for reason in FinishReason
        }

    def set_device(self, runner: DeviceRunner) -> None:
        """Say what a runner on a GPU has taken and prepared."""
        self._ladder = runner.ladder
        self._graph_captures.set(runner.num_captures)
        memory = self._device_memory
        memory(use="cache").set(runner.cache_bytes)
        alive = weakref.ref(runner)  # these metrics outlive it
        memory(use="arena").set_function(
            lambda: 0.0 if (now := alive()) is None else float(now.arena_bytes)
        )

    def set_process(self, pid: int) -> None:
        """Say that the model runs in a process of its own, and in which."""
        self._processes.add(self._model, pid)

    def set_capacity(self, slots: int, max_waiting: int, cache_bytes: int) -> None:
        """Say what the engine can hold."""
        self._slots.set(slots)
        self._max_waiting.set(max_waiting)
        self._cache_bytes.set(cache_bytes)

    def on_refused(self, reason: Refusal) -> None:
        """A call was refused on arrival."""
        self._refused[reason].inc()

    def on_admitted(self, queue_seconds: float) -> None:
        """A sentence got a slot."""
        self._queue_duration.observe(queue_seconds)

    def on_step(self, rows: int, encodes: int, encode_seconds: float, step_seconds: float) -> None:
        """One iteration: `encodes` sentences encoded, then `rows` rows stepped."""
        if encodes:
            self._encoded.inc(encodes)
            self._encode_duration.observe(encode_seconds)
        if rows:
            if self._ladder is not None:
                self._padded_rows.inc(self._ladder.padding(rows))
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
        """How many wait and how many hold a slot."""
        self._waiting.set(waiting)
        self._slots_used.set(running)

    def on_held_back(self, calls: int) -> None:
        """How many calls wait with sentences that are not in the queue yet."""
        self._held_back.set(calls)

    def on_first_token(self, seconds: float) -> None:
        """A sentence got its first token."""
        self._first_token.observe(seconds)

    def on_finished(self, result: GenerationResult, request: GenerationRequest) -> None:
        """A sentence ended, or the scoring of one."""
        if isinstance(request, ScoringRequest):
            # No slot is waited for, so that it says nothing of whether there are too few.
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

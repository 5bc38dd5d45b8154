"""Prometheus metrics of one server.

Every server has a registry of its own, so that several can live in one process. Labels are bounded:
methods, gRPC codes, the models that were loaded, finish reasons; never an address or a text.
"""

from __future__ import annotations

import functools
import platform

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from service.observability.client_metrics import NUM_CLIENTS, ClientMetrics
from service.observability.process_metrics import LogLines, ModelProcesses

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
    """All metrics of a server. `service.engine.metrics` sets those of a model.

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

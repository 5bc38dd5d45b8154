"""Prometheus metrics of one server.

Every server has its own registry, so that several can run in one process. Labels are bounded:
methods, gRPC codes, loaded models, finish reasons; never an address or a text.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from service.observability.client_metrics import NUM_CLIENTS, ClientMetrics, KeyMetrics
from service.observability.document_metrics import DocumentMetrics
from service.observability.process_metrics import LogLines, ModelProcesses

# `_created` series nearly double the number of series. Counters reset only at a restart, which
# `process_start_time_seconds` shows.
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
        registry: registry of the metrics.
        documents: metrics of document workers.

    Args:
        max_clients: most clients with series of their own (`ClientMetrics`).
    """

    def __init__(self, max_clients: int = NUM_CLIENTS) -> None:
        self.registry = CollectorRegistry()
        self._clients = ClientMetrics(self.registry, max_clients)
        self._keys = KeyMetrics(self.registry, max_clients)
        prometheus_client.ProcessCollector(registry=self.registry)
        self.processes = ModelProcesses(self.registry)
        LogLines(self.registry)
        self.documents = DocumentMetrics(self.registry)
        # Cached, because looking up a child by its labels takes longer than counting.
        self._requests = functools.cache(
            self._counter("dragoman_requests", "Calls finished.", "method", "code").labels
        )
        self._request_duration = functools.cache(
            self._histogram(
                "dragoman_request_duration_seconds",
                "Time from the arrival of a call to its end.",
                _CALL_BUCKETS,
                "method",
            ).labels
        )
        self._in_flight = functools.cache(
            self._gauge("dragoman_requests_in_flight", "Calls in progress.", "method").labels
        )
        self.requests_refused = Counter(
            "dragoman_requests_refused",
            "Calls refused because there is too much to do, or too little memory: those that ended "
            "with RESOURCE_EXHAUSTED, without calls over a quota of their key.",
            registry=self.registry,
        )
        self._http = functools.cache(
            self._counter(
                "dragoman_http_responses",
                "Answers of the HTTP front, by HTTP status; calls, files of the page, errors.",
                "code",
            ).labels
        )
        self._texts = functools.cache(
            self._counter("dragoman_texts", "Texts answered, by status.", "code").labels
        )
        self._warnings = functools.cache(
            self._counter(
                "dragoman_translation_warnings",
                "Warnings of translations, by kind.",
                "kind",
            ).labels
        )
        self._pivoted = functools.cache(
            self._counter(
                "dragoman_pivoted_calls",
                "Calls translated through a third language: by pivot_model into it, by model from "
                "it.",
                *("pivot_model", "model"),
            ).labels
        )
        self.serving = self._gauge(
            "dragoman_serving",
            "1 while the health service says SERVING; 0 while the server starts or drains, or a "
            "model is stalled.",
        )
        self._build = self._gauge(
            "dragoman_build_info",
            "Always 1; the labels are the versions in use.",
            *("version", "onnxruntime", "python"),
        )
        self._model = self._gauge(
            "dragoman_model_info",
            "Always 1, for each loaded model; the labels describe it.",
            *("model", "version", "precision", "device", "source", "target"),
        )
        self.keys = self._gauge("dragoman_keys", "API keys in the file.")
        self.keys_last_reload_successful = self._gauge(
            "dragoman_keys_last_reload_successful",
            "0 if the file of keys has changed and could not be read, else 1.",
        )
        self.jwks_last_fetch_successful = self._gauge(
            "dragoman_jwks_last_fetch_successful",
            "0 if the keys of the token issuer could not be fetched, else 1.",
        )
        self.usage_last_save_successful = self._gauge(
            "dragoman_usage_last_save_successful",
            "0 if the usage of keys could not be saved, else 1.",
        )
        self.tls_expiry = self._gauge(
            "dragoman_tls_certificate_expiry_timestamp_seconds",
            "Time when the certificate in use expires, in seconds since the epoch; 0 without TLS.",
        )
        self.tls_last_reload_successful = self._gauge(
            "dragoman_tls_last_reload_successful",
            "0 if the certificate has changed and the new one can't be used, else 1.",
        )
        for gauge in (
            self.keys_last_reload_successful,
            self.jwks_last_fetch_successful,
            self.usage_last_save_successful,
            self.tls_last_reload_successful,
        ):
            gauge.set(1)
        self._create_sentence_metrics()
        self._create_cache_metrics()
        self._create_step_metrics()
        self._create_capacity_metrics()
        self._create_lifecycle_metrics()

    def _create_sentence_metrics(self) -> None:
        """Create metrics of sentences: counts and durations."""
        self.queue_duration = self._histogram(
            "dragoman_queue_duration_seconds",
            "Time that a sentence waited for a row, with sentences that never got one; observed "
            "when the sentence ends.",
            _CALL_BUCKETS,
        )
        self.first_token = self._histogram(
            "dragoman_time_to_first_token_seconds",
            "Time from the arrival of a sentence to its first token.",
            _CALL_BUCKETS,
        )
        self.compute_duration = self._histogram(
            "dragoman_compute_duration_seconds",
            "Time that a sentence held a row.",
            _CALL_BUCKETS,
        )
        self.score_queue_duration = self._histogram(
            "dragoman_score_queue_duration_seconds",
            "Time that a translation waited to be scored, including those never scored.",
            _CALL_BUCKETS,
        )
        self.source_tokens = self._counter(
            "dragoman_source_tokens", "Source tokens read, with those that name a language."
        )
        self.target_tokens = self._counter(
            "dragoman_target_tokens", "Target tokens generated, with those that name a language."
        )
        self.wasted_tokens = self._counter(
            "dragoman_wasted_tokens",
            "Tokens generated for sentences that were cancelled, expired or failed.",
        )
        self.finished = self._counter(
            "dragoman_finished_sentences", "Sentences finished, by reason.", "model", "reason"
        )
        self.refused = self._counter(
            "dragoman_refused_calls",
            "Calls refused on arrival, before any computation: the queue is full (quota), the "
            "estimated wait is too long (wait), the model is overloaded (overload), or the "
            "deadline cannot be met (deadline).",
            *("model", "reason"),
        )

    def _create_cache_metrics(self) -> None:
        """Create metrics of the response cache."""
        self.response_cache_lookups = self._counter(
            "dragoman_response_cache_lookups",
            "Sentences, and scores of links and alignments, that the response cache was asked for: "
            "answered (hit), answered together with an equal one in progress (joined), or computed "
            "(miss).",
            *("model", "result"),
        )
        self.response_cache_store_keys = self._counter(
            "dragoman_response_cache_store_keys",
            "Keys that the shared store was asked for, which it had (hit) or not (miss); and keys "
            "and values that it failed to answer or to take (error).",
            "result",
        )
        self.response_cache_bytes = Gauge(
            "dragoman_response_cache_bytes",
            "Memory of the response cache in this process.",
            registry=self.registry,
        )

    def _create_step_metrics(self) -> None:
        """Create metrics of the work of iterations."""
        self.encode_duration = self._histogram(
            "dragoman_encode_duration_seconds",
            "Duration of an encode, within an iteration or beside the steps.",
            _STEP_BUCKETS,
        )
        self.encoded = self._counter("dragoman_encoded_sentences", "Sentences encoded.")
        self.padding_tokens = self._counter(
            "dragoman_padding_tokens", "Padding positions that the encoder computed."
        )
        self.step_duration = self._histogram(
            "dragoman_step_duration_seconds", "Duration of a decoder step.", _STEP_BUCKETS
        )
        self.step_rows = self._histogram(
            "dragoman_step_rows", "Rows in a decoder step.", _ROW_BUCKETS
        )
        self.padded_rows = self._counter(
            "dragoman_padded_rows", "Padding rows that filled batches up to the next size of a GPU."
        )
        self.score_duration = self._histogram(
            "dragoman_score_duration_seconds",
            "Duration of the scoring in an iteration, encoder included.",
            _STEP_BUCKETS,
        )
        self.scored = self._counter(
            "dragoman_scored_translations", "Translations scored, including those for alignments."
        )

    def _create_capacity_metrics(self) -> None:
        """Create gauges of a model's capacity and its use."""
        self.rows = self._gauge("dragoman_rows", "Rows that can step at the same time.", "model")
        self.rows_used = self._gauge("dragoman_rows_used", "Rows in use.", "model")
        self.waiting = self._gauge(
            "dragoman_waiting_sentences", "Sentences waiting for a row.", "model"
        )
        self.max_waiting = self._gauge(
            "dragoman_waiting_sentences_limit", "Sentences that can wait for a row.", "model"
        )
        self.held_back = self._gauge(
            "dragoman_held_back_calls",
            "Calls with sentences that the queue has no room for yet.",
            "model",
        )
        self.stalled = self._gauge(
            "dragoman_stalled", "1 while a model has work and makes no progress, else 0.", "model"
        )
        self.cache_bytes = self._gauge(
            "dragoman_cache_bytes", "Memory reserved for the key and value caches.", "model"
        )
        self.device_memory = self._gauge(
            "dragoman_device_memory_bytes",
            "GPU memory of the caches (cache), and of weights, activations and captured graphs "
            "(arena).",
            *("model", "use"),
        )
        self.graph_captures = self._gauge(
            "dragoman_graph_captures", "CUDA graphs captured at the start.", "model"
        )

    def _create_lifecycle_metrics(self) -> None:
        """Create metrics of reloads, wakes, restarts and the states of models."""
        self.model_state = self._gauge(
            "dragoman_model_state",
            "1 for the state that a model is in, else 0: serving, asleep or loading (woken or "
            "restarted).",
            *("model", "state"),
        )
        self.reloads = self._counter(
            "dragoman_model_reloads",
            "Attempts to replace a model in the running server: a new version took over (success), "
            "or was refused (failure).",
            *("model", "result"),
        )
        self.last_reload_successful = self._gauge(
            "dragoman_model_last_reload_successful",
            "0 if the last attempt to replace a model failed, and no reload has found its bundle "
            "unchanged since; else 1.",
            "model",
        )
        self.last_load = self._gauge(
            "dragoman_model_last_load_timestamp_seconds",
            "Time when a version of a model last took over, at the start or in the running server.",
            "model",
        )
        self.wakes = self._counter(
            "dragoman_model_wakes",
            "Attempts to open a sleeping model for a call.",
            *("model", "result"),
        )
        self.restarts = self._counter(
            "dragoman_model_restarts",
            "Attempts to open a model again whose process had ended or was killed because it hung.",
            *("model", "result"),
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels or ["model"], registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], label: str = "model"
    ) -> Histogram:
        return Histogram(name, text, [label], buckets=buckets, registry=self.registry)

    def set_build(self, version: str, onnxruntime: str) -> None:
        """Set the versions of server, ONNX Runtime and Python."""
        self._build.labels(version, onnxruntime, platform.python_version()).set(1)

    def set_model(self, **labels: str) -> None:
        """Set the labels of `dragoman_model_info` for a version of a model."""
        self._model.remove_by_labels({"model": labels["model"]})  # the previous version
        self._model.labels(**labels).set(1)

    def call_started(self, method: str) -> None:
        """Count a call that arrived; `method` is of the contract, so the label is bounded."""
        self._in_flight(method).inc()

    def call_finished(
        self,
        method: str,
        code: str,
        seconds: float,
        client: str = "",
        trace_ids: Mapping[str, str] | None = None,
    ) -> None:
        """Count a call that ended with the gRPC status `code`; with `trace_ids` if traced."""
        self._clients.call_finished(client, code)
        self._in_flight(method).dec()
        self._requests(method, code).inc()
        exemplar = None if trace_ids is None else dict(trace_ids)
        self._request_duration(method).observe(seconds, exemplar)

    def key_used(self, name: str, code: str, num_characters: int) -> None:
        """Count a call that ended, and its characters, for the key `name`."""
        self._keys.used(name, code, num_characters)

    def call_pivoted(self, pivot_model: str, model: str) -> None:
        """Count a call that two models translate in sequence."""
        self._pivoted(pivot_model, model).inc()

    def http_answered(self, code: int) -> None:
        """Count a request that was answered with this HTTP status."""
        self._http(str(code)).inc()

    def text_finished(self, code: str) -> None:
        """Count a text that was answered with the gRPC status `code`."""
        self._texts(code).inc()

    def warned(self, kind: str) -> None:
        """Count a translation with a warning of this kind."""
        self._warnings(kind).inc()

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition as open_metrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_open_metrics,
)
from prometheus_client.parser import text_string_to_metric_families

from service.batching.events import Iteration
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    ScoringRequest,
)
from service.engine.metrics import ModelMetrics
from service.observability.metrics import ServerMetrics


@pytest.fixture
def metrics() -> ServerMetrics:
    """Every metric with a value."""
    metrics = ServerMetrics()
    metrics.set_build("0.1", "1.31.1")
    metrics.set_model(
        model="m", version="1", precision="int8", device="cpu", source="en", target="de"
    )
    metrics.serving.set(1)
    metrics.call_started("Translate")
    metrics.call_finished("Translate", "OK", 0.5, "id:someone")
    metrics.text_finished("OK")
    observer = ModelMetrics(metrics, "m")
    observer.set_capacity(rows=64, max_waiting=100, cache_bytes=1_000_000)
    iteration = Iteration(
        num_waiting=3,
        num_running=8,
        num_rows=8,
        num_encodes=2,
        encode_seconds=0.004,
        step_seconds=0.002,
        num_padding=5,
    )
    observer.on_iterations([iteration])
    request = GenerationRequest(source_ids=(5, 6, 3))
    observer.on_finished(
        GenerationResult(
            [7, 8],
            FinishReason.EOS,
            queue_seconds=0.01,
            compute_seconds=0.1,
            first_token_seconds=0.02,
        ),
        request,
    )
    observer.on_finished(GenerationResult([7], FinishReason.CANCELLED), request)
    observer.on_finished(
        GenerationResult([], FinishReason.DEADLINE, was_admitted=False, queue_seconds=2.0), request
    )
    observer.on_held_back(2)
    observer.on_iterations([Iteration(3, 8, num_scored=1, score_seconds=0.01)])
    scoring = ScoringRequest(source_ids=(5, 3), target_ids=(6, 3))
    for was_admitted in (True, False):
        scored = GenerationResult(
            [6], FinishReason.EOS, was_admitted=was_admitted, queue_seconds=0.25
        )
        observer.on_finished(scored, scoring)
    return metrics


@pytest.fixture
def page(metrics: ServerMetrics) -> str:
    """The text of /metrics."""
    return generate_latest(metrics.registry).decode()


def test_an_engine_s_figures_come_out(page: str) -> None:
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert values["dragoman_requests_total", "OK", "Translate"] == 1
    assert values["dragoman_requests_in_flight", "Translate"] == 0
    assert values["dragoman_step_rows_sum", "m"] == 8
    assert values["dragoman_step_rows_count", "m"] == 1
    assert values["dragoman_encoded_sentences_total", "m"] == 2
    assert values["dragoman_rows", "m"] == 64
    assert values["dragoman_rows_used", "m"] == 8
    assert values["dragoman_waiting_sentences", "m"] == 3
    assert values["dragoman_source_tokens_total", "m"] == 8
    assert values["dragoman_target_tokens_total", "m"] == 3
    assert values["dragoman_wasted_tokens_total", "m"] == 1
    assert values["dragoman_padding_tokens_total", "m"] == 5
    assert values["dragoman_finished_sentences_total", "m", "eos"] == 1
    assert values["dragoman_finished_sentences_total", "m", "deadline"] == 1
    assert values["dragoman_queue_duration_seconds_count", "m"] == 3  # one waited and gave up,
    assert values["dragoman_queue_duration_seconds_sum", "m"] == 2.01
    # Scores waited for no row: autoscaling must not count them.
    assert values["dragoman_score_queue_duration_seconds_count", "m"] == 2
    assert values["dragoman_score_queue_duration_seconds_sum", "m"] == 0.5
    assert values["dragoman_compute_duration_seconds_count", "m"] == 2  # but was never computed
    assert values["dragoman_held_back_calls", "m"] == 2
    assert values["dragoman_finished_sentences_total", "m", "error"] == 0


def test_every_metric_has_our_prefix_or_is_the_process_s(page: str) -> None:
    for family in text_string_to_metric_families(page):
        assert family.name.startswith(("dragoman_", "process_"))
        assert family.documentation.endswith((".", "s."))


def test_two_servers_in_a_process_share_nothing() -> None:
    first, second = ServerMetrics(), ServerMetrics()
    first.text_finished("OK")
    labels = {"code": "OK"}
    assert first.registry.get_sample_value("dragoman_texts_total", labels) == 1
    assert second.registry.get_sample_value("dragoman_texts_total", labels) is None


@given(st.lists(st.sampled_from([*(f"id:{n}" for n in range(6)), "ipv4:10.0.0.1", "id:other"])))
def test_the_first_clients_are_counted_each_by_itself(clients: list[str]) -> None:
    metrics = ServerMetrics(max_clients=3)
    for client in clients:
        metrics.call_finished("Translate", "OK", 0.1, client)
    (family,) = (
        family for family in metrics.registry.collect() if family.name == "dragoman_client_requests"
    )
    counted = {sample.labels["client"]: sample.value for sample in family.samples}
    named = [client for client in dict.fromkeys(clients) if client.startswith("id:")]
    expected = Counter(
        "address" if client.startswith("ipv4") else client if client in named[:3] else "other"
        for client in clients
    )
    assert counted == expected


def test_a_score_that_waited_names_its_trace() -> None:
    metrics = ServerMetrics()
    ids = {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7"}
    request = ScoringRequest(source_ids=(5, 3), target_ids=(6, 3))
    result = GenerationResult([6], FinishReason.EOS, queue_seconds=0.25)
    ModelMetrics(metrics, "m").on_finished(result, request, ids)
    page = open_metrics.generate_latest(metrics.registry).decode()  # type: ignore[no-untyped-call]
    (sample,) = (
        sample
        for family in parse_open_metrics(page)  # type: ignore[no-untyped-call]
        for sample in family.samples
        if sample.exemplar
    )
    assert sample.name == "dragoman_score_queue_duration_seconds_bucket"
    assert (sample.exemplar.labels, sample.exemplar.value) == (ids, 0.25)

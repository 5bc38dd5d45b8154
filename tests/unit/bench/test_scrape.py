from __future__ import annotations

import dataclasses

import pytest

from bench.load.errors import ServerError
from bench.load.plan import LoadPlan
from bench.load.results import Results
from bench.load.scrape import Snapshot, bucket_percentile, scrape, server_figures, whose_metrics
from bench.load.statistics import Run
from service.batching.events import Iteration
from service.domain.requests import FinishReason, GenerationRequest, GenerationResult
from service.engine.metrics import ModelMetrics
from service.observability.metrics import ServerMetrics
from service.ports.metrics_port import MetricsEndpoint, Probes
from tests.unit.bench.samples import sample


def page(metrics: ServerMetrics) -> str:
    from prometheus_client import generate_latest

    return generate_latest(metrics.registry).decode()


def test_the_figures_of_a_run_from_the_servers_own_metrics() -> None:
    """Against the server's own class, so that a renamed metric is noticed here."""
    metrics = ServerMetrics()
    observer = ModelMetrics(metrics, "m")
    observer.set_capacity(rows=8, max_waiting=10, cache_bytes=1)
    observer.on_iterations([Iteration(0, 8, 8, 1, 0.1, 0.1)])  # before the run
    before = Snapshot.parse(page(metrics), 10.0)
    for _ in range(10):
        observer.on_iterations([Iteration(5, 2, 2, 1, 0.01, 0.05, num_padding=3)])
    request = GenerationRequest(source_ids=(5, 6, 3))
    observer.on_finished(GenerationResult([7, 8], FinishReason.EOS, queue_seconds=0.02), request)
    during = Snapshot.parse(page(metrics), 15.0)
    observer.on_iterations([Iteration(0, 0)])
    after = Snapshot.parse(page(metrics), 20.0)
    figures = server_figures([before, during, after], begin=10.0, end=20.0)
    assert figures is not None
    assert figures.seconds == 10.0
    assert figures.rows_per_step == pytest.approx(2.0)
    assert figures.row_use == pytest.approx(0.25)
    assert figures.steps_per_second == pytest.approx(1.0)
    assert figures.step_share == pytest.approx(0.05)
    assert figures.encode_share == pytest.approx(0.01)
    assert figures.queue_mean == pytest.approx(0.02)
    assert figures.queue_p50 is not None
    assert 0.01 <= figures.queue_p50 <= 0.025
    assert figures.max_waiting == 5
    assert figures.wasted_tokens == 0
    assert figures.padding_tokens == 30
    assert figures.padding_share == pytest.approx(10.0)
    assert figures.cpu_cores is not None
    assert figures.max_memory_bytes is not None


def test_too_few_scrapes_say_nothing() -> None:
    one = Snapshot(3.0, {}, {}, {})
    assert server_figures([], 0, 10) is None
    assert server_figures([one], 0, 10) is None


def test_scrapes_nearest_to_the_measured_time_bound_it() -> None:
    shots = [
        Snapshot(float(s), {"dragoman_target_tokens_total": s * 10.0}, {}, {}) for s in range(9)
    ]
    figures = server_figures(shots, begin=2.5, end=6.5)
    assert figures is not None
    assert figures.seconds == 5.0
    assert figures.target_tokens_per_second == pytest.approx(10.0)


def test_percentiles_within_buckets() -> None:
    buckets = {"0.1": 50.0, "0.2": 90.0, "1.0": 100.0, "+Inf": 100.0}
    assert bucket_percentile(buckets, 50) == pytest.approx(0.1)
    assert bucket_percentile(buckets, 70) == pytest.approx(0.15)
    assert bucket_percentile(buckets, 99) == pytest.approx(0.92)
    assert bucket_percentile({"0.1": 0.0, "+Inf": 5.0}, 50) == pytest.approx(0.1)
    assert bucket_percentile({}, 50) is None


def test_scraping_a_port_where_nothing_is() -> None:
    endpoint = MetricsEndpoint(ServerMetrics().registry, Probes(), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{endpoint.port}/metrics"
    assert scrape(url, start=0.0).values["process_resident_memory_bytes"] > 0
    endpoint.close()
    with pytest.raises(ServerError, match="no metrics at"):
        scrape(url, start=0.0)


def counting(*counts: float) -> list[Snapshot]:
    """A scrape every ten seconds, with so many tokens written until then."""
    name = "dragoman_target_tokens_total"
    return [Snapshot(10.0 * n, {name: count}, {}, {}) for n, count in enumerate(counts)]


def test_metrics_of_another_server_are_noticed() -> None:
    samples = [sample(n, 1.0 + n / 100, 0.1, target_tokens=10) for n in range(100)]
    for own in (counting(500, 1500), counting(500, 2500), counting(0, 995), []):
        assert whose_metrics(own, samples) == ""
    for foreign in (counting(500, 500), counting(0, 300)):
        assert "not of the server that answered" in whose_metrics(foreign, samples)
        results = Results(Run(LoadPlan("", rate=100, duration=10, warmup=0), samples, [], 10), None)
        assert dataclasses.replace(results, snapshots=foreign).server() is None
        assert dataclasses.replace(results, snapshots=counting(0, 1000)).server() is not None


def test_a_server_that_counts_no_tokens_is_believed() -> None:
    samples = [sample(0, 1.0, 0.1, target_tokens=10)]
    shots = [Snapshot(0.0, {}, {}, {}), Snapshot(10.0, {}, {}, {})]
    assert whose_metrics(shots, samples) == ""

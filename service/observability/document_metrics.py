"""Metrics of the processes that read and write documents."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_WORK_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class DocumentMetrics:
    """Counts the work of document workers.

    Attributes:
        work_duration: duration by work, "read" or "write".
        workers_killed: number of workers by reason.
        waiting: number of documents that wait for a worker.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.work_duration = Histogram(
            "dragoman_document_work_duration_seconds",
            "Time that a worker took to read or to write a document, killed workers included.",
            ["work"],
            buckets=_WORK_BUCKETS,
            registry=registry,
        )
        self.workers_killed = Counter(
            "dragoman_document_workers_killed",
            "Workers that ended before they had read or written their document: beyond the limit "
            "of time or memory, killed by the kernel (out_of_memory), for a call that ended first "
            "(cancelled), for too long an answer (answer), or by themselves (crash).",
            ["reason"],
            registry=registry,
        )
        self.waiting = Gauge(
            "dragoman_documents_waiting", "Documents that wait for a worker.", registry=registry
        )

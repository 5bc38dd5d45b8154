"""A load test from the first check to its files; the command line and the benchmarks call it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.load.arrivals import arrival_times
from bench.load.coordinator import Coordinator
from bench.load.grpc_call import find_server
from bench.load.host import HostTimes, read_times
from bench.load.html_report import render
from bench.load.plan import LoadPlan
from bench.load.results import Results, ResultsWriter, about_machine
from bench.load.sample import RequestSample
from bench.load.scrape import Scraper, Snapshot, whose_metrics
from bench.load.statistics import Run
from bench.load.units import Slo


@dataclass(frozen=True)
class RunProgress:
    """The state of a run in progress.

    Attributes:
        seconds: since its beginning, warm-up included.
        snapshots: the server's metrics so far.
    """

    run: Run
    seconds: float
    snapshots: Sequence[Snapshot]


def _go_on(progress: RunProgress) -> bool:
    return False


@dataclass(frozen=True)
class Session:
    """The settings that several runs share.

    Attributes:
        slo: the latency target; None without one.
        metrics_url: URL of the server's metrics; None to leave them out.
        about: facts to store with the results.
    """

    texts: Sequence[str]
    slo: Slo | None = None
    metrics_url: str | None = None
    about: dict[str, Any] = field(default_factory=dict)

    def run(
        self,
        plan: LoadPlan,
        output: Path | None = None,
        observer: Callable[[RunProgress], bool] = _go_on,
    ) -> Results:
        """Run `plan`. Measurements are written whatever ends the run.

        Args:
            output: a directory for the results; None to write nothing.
            observer: function that is called several times a second; True ends the run.

        Raises:
            ServerError: there is no server.
            ResultsError: the directory can't be written.
            LoadError: the generator did not start.
        """
        about = {**about_machine(), **self.about, "models": find_server(plan)}
        writer = ResultsWriter(output, plan, self.slo, about) if output else None
        scrapers: list[Scraper] = []
        before: list[HostTimes | None] = []

        def observe(run: Run, new: list[RequestSample], seconds: float) -> bool:
            if writer and new:
                writer.add(run.samples)
            snapshots = scrapers[0].snapshots if scrapers else []
            return observer(RunProgress(run, seconds, snapshots))

        # From here on: starting the generator's processes does not count as a disturbance.
        def begin(start: float) -> None:
            before.append(read_times())
            if self.metrics_url is not None:
                scrapers.append(Scraper(self.metrics_url, start, plan.tls.ca if plan.tls else ""))

        try:
            run = Coordinator(plan, self.texts, observe).run(begin)
            after = read_times()
        finally:
            for scraper in scrapers:
                scraper.stop()
        if before and before[0] is not None and after is not None:
            about["host"] = before[0].until(after)
        if scrapers and scrapers[0].error:
            about["metrics_error"] = scrapers[0].error
        snapshots = tuple(scrapers[0].snapshots) if scrapers else ()
        if mistaken := whose_metrics(snapshots, run.samples):
            about["metrics_error"] = f"metrics at {self.metrics_url}: {mistaken}"
        run.num_scheduled = _num_scheduled(run)
        results = Results(run, self.slo, snapshots, about)
        if writer:
            writer.finish(results, render(results))
        return results


def about_source(path: Path, texts: Sequence[str]) -> dict[str, Any]:
    """The name, count and checksum of a run's texts."""
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    return {"source": {"file": path.name, "texts": len(texts), "sha256": digest}}


def _num_scheduled(run: Run) -> int | None:
    plan = run.plan
    if plan.rate is None:
        return None
    times = arrival_times(
        plan.arrivals, plan.rate, plan.total_seconds, seed=plan.seed, burstiness=plan.burstiness
    )
    return int(((times >= plan.warmup) & (times < run.seconds)).sum())

"""The server's own metrics over a run."""

from __future__ import annotations

import ssl
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bench.load.errors import ServerError
from bench.load.sample import RequestSample

SCRAPE_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0
_LEAST_SHARE_COUNTED = 0.9

Buckets = dict[str, float]


@dataclass(frozen=True)
class Snapshot:
    """One scrape, summed over the server's models and their processes.

    Attributes:
        seconds: when, from the beginning of the run, warm-up included.
        values: counters and gauges by the name of their series.
        queue_buckets: cumulative counts of the queue time's histogram, by upper bound.
        row_buckets: the same for the rows of a step.
    """

    seconds: float
    values: Mapping[str, float]
    queue_buckets: Buckets
    row_buckets: Buckets

    @classmethod
    def parse(cls, text: str, seconds: float) -> Snapshot:
        """The figures in a page of metrics.

        Raises:
            ValueError: the text is not in Prometheus' format.
        """
        values: dict[str, float] = defaultdict(float)
        buckets: dict[str, Buckets] = {_QUEUE: defaultdict(float), _ROWS: defaultdict(float)}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                series = _SAME_AS.get(sample.name, sample.name)
                name = series.removesuffix("_bucket")
                if name in buckets and "le" in sample.labels:
                    buckets[name][sample.labels["le"]] += sample.value
                elif series in _SERIES:
                    values[series] += sample.value
        return cls(seconds, dict(values), dict(buckets[_QUEUE]), dict(buckets[_ROWS]))


_QUEUE = "dragoman_queue_duration_seconds"
_ROWS = "dragoman_step_rows"
_TOKENS = "dragoman_target_tokens_total"
_SERIES = {
    f"{_QUEUE}_sum",
    f"{_QUEUE}_count",
    f"{_ROWS}_sum",
    f"{_ROWS}_count",
    "dragoman_step_duration_seconds_sum",
    "dragoman_encode_duration_seconds_sum",
    "dragoman_rows",
    "dragoman_rows_used",
    "dragoman_waiting_sentences",
    "dragoman_requests_in_flight",
    "dragoman_source_tokens_total",
    _TOKENS,
    "dragoman_wasted_tokens_total",
    "dragoman_padding_tokens_total",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
}
# Models in processes of their own count as the server's.
_SAME_AS = {
    f"dragoman_model_{name}": name
    for name in ("process_cpu_seconds_total", "process_resident_memory_bytes")
}


def scrape(url: str, start: float, ca: str | Path = "") -> Snapshot:
    """Fetch a page of metrics.

    Args:
        start: the beginning of the run (`time.monotonic`).
        ca: file with the authorities to trust for https; by default those of the system.

    Raises:
        ServerError: there are no metrics there.
    """
    try:
        context = ssl.create_default_context(cafile=ca) if ca else None
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS, context=context) as response:
            text = response.read().decode("utf-8")
        return Snapshot.parse(text, time.monotonic() - start)
    except (OSError, ValueError, urllib.error.URLError) as exc:
        raise ServerError(f"no metrics at {url}: {exc}") from exc


class Scraper:
    """Scrapes once a second, in a thread of its own, until it is stopped.

    Attributes:
        snapshots: the scrapes so far.
        error: reason why the last scrape failed; "" if it did not.
    """

    def __init__(self, url: str, start: float, ca: str | Path = "") -> None:
        self.snapshots: list[Snapshot] = []
        self.error = ""
        self._url = url
        self._start = start
        self._ca = ca
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scraper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Scrape a last time and stop."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        going = True
        while going:
            going = not self._stopped.wait(SCRAPE_SECONDS if self.snapshots or self.error else 0)
            try:
                self.snapshots.append(scrape(self._url, self._start, self._ca))
                self.error = ""
            except ServerError as exc:
                self.error = str(exc)


@dataclass(frozen=True)
class ServerFigures:
    """The server's figures over the measured time; None where it does not report them.

    Attributes:
        seconds: time between the two scrapes at its ends.
        queue_mean, queue_p50, queue_p99: seconds that a sentence waited for a row; percentiles
            are interpolated within the histogram's buckets, so rough.
        rows_per_step: mean number of rows in a step.
        steps_per_second: decoder steps.
        step_share, encode_share: share of the time spent in the two graphs.
        max_rows: rows that could step at the same time.
        row_use: mean share of them in use during a step.
        max_waiting: most sentences seen waiting.
        target_tokens_per_second: rate of written tokens.
        wasted_tokens: tokens of calls that were cancelled or expired.
        padding_tokens: positions of sources computed that held no token; None if the server does
            not count them.
        source_tokens: tokens that the model read, of sentences that ended.
        cpu_cores: cores kept busy.
        max_memory_bytes: most resident memory seen.
    """

    seconds: float
    queue_mean: float | None
    queue_p50: float | None
    queue_p99: float | None
    rows_per_step: float | None
    steps_per_second: float | None
    step_share: float | None
    encode_share: float | None
    max_rows: float | None
    row_use: float | None
    max_waiting: float | None
    target_tokens_per_second: float | None
    wasted_tokens: float | None
    padding_tokens: float | None
    source_tokens: float | None
    cpu_cores: float | None
    max_memory_bytes: float | None

    @property
    def padding_share(self) -> float | None:
        """Padding divided by the tokens that the model read."""
        return _ratio(self.padding_tokens, self.source_tokens)


def server_figures(snapshots: Sequence[Snapshot], begin: float, end: float) -> ServerFigures | None:
    """The figures between two times (seconds from the start); None without two scrapes."""
    before = [s for s in snapshots if s.seconds <= begin] or list(snapshots[:1])
    after = [s for s in snapshots if s.seconds >= end] or list(snapshots[-1:])
    if not before or not after or after[0].seconds <= before[-1].seconds:
        return None
    first, last = before[-1], after[0]
    during = [s for s in snapshots if first.seconds <= s.seconds <= last.seconds]
    seconds = last.seconds - first.seconds

    def grown(name: str) -> float | None:
        if name not in last.values:
            return None
        return last.values[name] - first.values.get(name, 0.0)

    def highest(name: str) -> float | None:
        return max((s.values[name] for s in during if name in s.values), default=None)

    queue = _difference(first.queue_buckets, last.queue_buckets)
    rows = _ratio(grown(f"{_ROWS}_sum"), grown(f"{_ROWS}_count"))
    max_rows = last.values.get("dragoman_rows")
    return ServerFigures(
        seconds=seconds,
        queue_mean=_ratio(grown(f"{_QUEUE}_sum"), grown(f"{_QUEUE}_count")),
        queue_p50=bucket_percentile(queue, 50),
        queue_p99=bucket_percentile(queue, 99),
        rows_per_step=rows,
        steps_per_second=_ratio(grown(f"{_ROWS}_count"), seconds),
        step_share=_ratio(grown("dragoman_step_duration_seconds_sum"), seconds),
        encode_share=_ratio(grown("dragoman_encode_duration_seconds_sum"), seconds),
        max_rows=max_rows,
        row_use=_ratio(rows, max_rows),
        max_waiting=highest("dragoman_waiting_sentences"),
        target_tokens_per_second=_ratio(grown(_TOKENS), seconds),
        wasted_tokens=grown("dragoman_wasted_tokens_total"),
        padding_tokens=grown("dragoman_padding_tokens_total"),
        source_tokens=grown("dragoman_source_tokens_total"),
        cpu_cores=_ratio(grown("process_cpu_seconds_total"), seconds),
        max_memory_bytes=highest("process_resident_memory_bytes"),
    )


def whose_metrics(snapshots: Sequence[Snapshot], samples: Sequence[RequestSample]) -> str:
    """The reason why the metrics belong to another server than the one that answered, or "".

    That server has counted the tokens that it answered with. Another one, at the address where
    metrics are looked for by default, has not.
    """
    if len(snapshots) < 2 or _TOKENS not in snapshots[-1].values:
        return ""
    first, last = snapshots[0], snapshots[-1]
    answered = sum(
        s.reply.target_tokens
        for s in samples
        if s.ok and s.sent >= first.seconds and s.ended <= last.seconds
    )
    counted = last.values[_TOKENS] - first.values.get(_TOKENS, 0.0)
    if counted >= _LEAST_SHARE_COUNTED * answered:
        return ""
    return (
        f"they are not of the server that answered: {counted:,.0f} tokens were counted there, "
        f"{answered:,} were answered; give its own --metrics URL"
    )


def bucket_percentile(buckets: Buckets, percentile: float) -> float | None:
    """A percentile from cumulative counts, linear within a bucket (as PromQL's quantile is)."""
    bounds = sorted((float(bound), count) for bound, count in buckets.items())
    if not bounds or not bounds[-1][1]:
        return None
    rank = bounds[-1][1] * percentile / 100
    lower = below = 0.0
    for bound, count in bounds:
        if count >= rank:
            if bound == float("inf"):
                return lower
            inside = count - below
            return lower + (bound - lower) * ((rank - below) / inside if inside else 1.0)
        lower, below = bound, count
    return lower


def _difference(before: Buckets, after: Buckets) -> Buckets:
    return {bound: count - before.get(bound, 0.0) for bound, count in after.items()}


def _ratio(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None

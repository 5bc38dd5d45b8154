"""Figures from samples; everything that is printed, stored or drawn comes from here."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hdrh.histogram import HdrHistogram

from bench.load.plan import LoadPlan
from bench.load.sample import UNFINISHED, RequestSample
from bench.load.units import Slo, format_seconds, min_samples

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)

MAX_SECONDS = 24 * 3600.0
"""Longer durations, infinite ones too, count as this."""

_MAX_MICROSECONDS = round(MAX_SECONDS * 1e6)
_SIGNIFICANT_DIGITS = 3

_MAX_SHARE_LATE = 0.01
_TOLERATED_LATE_SECONDS = 0.010
_TOLERATED_LATE_SHARE = 0.1


@dataclass(frozen=True)
class Distribution:
    """Mean, maximum and percentiles of durations, in seconds.

    Attributes:
        mean, max: None without durations.
        percentiles: values by percentile ("99.9"); None where there are fewer samples than
            `units.min_samples` asks for. From an HdrHistogram of 3 digits, so up to 0.1 % high.
    """

    count: int
    mean: float | None
    max: float | None
    percentiles: dict[str, float | None]

    def at(self, percentile: float) -> float | None:
        """The value at one of `PERCENTILES`."""
        return self.percentiles[f"{percentile:g}"]


def histogram(seconds: Iterable[float]) -> HdrHistogram:
    """An HdrHistogram (http://hdrhistogram.org) of durations, in microseconds."""
    counts = HdrHistogram(1, _MAX_MICROSECONDS, _SIGNIFICANT_DIGITS)
    for value in seconds:
        counts.record_value(max(1, round(min(_MAX_MICROSECONDS, value * 1e6))))
    return counts


def percentile_of(counts: HdrHistogram, percentile: float) -> float | None:
    """Seconds at a percentile, or None if there are too few samples to say."""
    if counts.get_total_count() < min_samples(percentile):
        return None
    return float(counts.get_value_at_percentile(percentile)) / 1e6


def distribution(seconds: Sequence[float]) -> Distribution:
    """The distribution of durations in seconds."""
    counts = histogram(seconds)
    return Distribution(
        count=len(seconds),
        mean=sum(seconds) / len(seconds) if seconds else None,
        max=max(seconds, default=None),
        percentiles={f"{p:g}": percentile_of(counts, p) for p in PERCENTILES},
    )


@dataclass(frozen=True)
class Summary:
    """A run in figures. Rates are per second of the measured time, warm-up left out.

    Attributes:
        seconds: the measured time.
        offered_rate: requests a second that were due (open loop) or sent (closed loop).
        achieved_rate: requests a second that were answered.
        num_requests, num_ok, num_unfinished: numbers of requests that were due in this time.
        errors: numbers of failed requests, by gRPC code.
        error_messages: an example of each code.
        min_retry_after: the shortest "try again after" that came with an error; None without any.
        latency: latency of answered requests, from the time at which they were due.
        latency_from_sending: latency from the time of sending, as a tool without a schedule
            measures it.
        first_token, token_gap: times of streams to the first piece of text, and between two pieces.
        queue, compute: durations from the server.
        goodput: answers a second within the target's time; None without a target.
        slo_kept: whether the target was met without an error; None without a target,
            or with too few samples to say.
        drain_seconds: time from the end of the load to the last answer.
        texts_per_second, source_tokens_per_second, target_tokens_per_second: rates of
            answered requests.
        problems: reason why the run is not valid; empty if it is.
        send_lag: delay of an open loop's requests behind their schedule.
        wake_lag: delay of the wake-ups of the generator's event loop.
        generator_cpu: cores that the generator kept busy.
    """

    seconds: float
    offered_rate: float
    achieved_rate: float
    num_requests: int
    num_ok: int
    num_unfinished: int
    errors: dict[str, int]
    error_messages: dict[str, str]
    min_retry_after: float | None
    latency: Distribution
    latency_from_sending: Distribution
    first_token: Distribution
    token_gap: Distribution
    queue: Distribution
    compute: Distribution
    goodput: float | None
    slo_kept: bool | None
    drain_seconds: float
    texts_per_second: float
    source_tokens_per_second: float
    target_tokens_per_second: float
    problems: list[str]
    send_lag: Distribution
    wake_lag: Distribution
    generator_cpu: float

    @property
    def valid(self) -> bool:
        """Whether the figures describe the server rather than the generator."""
        return not self.problems

    @property
    def num_errors(self) -> int:
        """Requests that ended in an error."""
        return sum(self.errors.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**dataclasses.asdict(self), "valid": self.valid}


@dataclass
class Run:
    """A run's samples and how they were made.

    Attributes:
        samples: every request that ended or was broken off, in the order of their ends.
        lags: delays of the generators' event loops, in seconds.
        seconds: duration, warm-up included; less than planned if it was broken off.
        broken_off: reason why it ended early; "" if it did not.
        cpu_seconds: CPU time of the generator's processes.
        num_scheduled: requests of an open loop that were to be sent in the measured time; None
            for a closed loop.
        num_in_flight: calls in progress at the last report.
    """

    plan: LoadPlan
    samples: list[RequestSample]
    lags: list[float]
    seconds: float
    broken_off: str = ""
    cpu_seconds: float = 0.0
    num_scheduled: int | None = None
    num_in_flight: int = 0

    @property
    def measured_seconds(self) -> float:
        """Without the warm-up."""
        return max(0.0, self.seconds - self.plan.warmup)

    def measured(self) -> list[RequestSample]:
        """The requests that were to be sent in the measured time."""
        warmup = self.plan.warmup
        return [s for s in self.samples if warmup <= s.scheduled < self.seconds]

    def answered(self) -> list[RequestSample]:
        """The requests that were answered in the measured time, whenever they were sent."""
        warmup = self.plan.warmup
        return [s for s in self.samples if s.ok and warmup <= s.ended < self.seconds]


def summarise(run: Run, slo: Slo | None = None) -> Summary:
    """The run in figures."""
    measured, answered = run.measured(), run.answered()
    ok = [s for s in measured if s.ok]
    failed = [s for s in measured if s.failed]
    seconds = run.measured_seconds
    per_second = 1 / seconds if seconds else 0.0
    offered = len(measured) if run.num_scheduled is None else run.num_scheduled
    latencies = [s.latency for s in ok]
    retries = [s.reply.retry_after for s in failed if s.reply.retry_after is not None]
    send_lags = [s.sent - s.scheduled for s in measured] if run.plan.rate is not None else []
    return Summary(
        seconds=seconds,
        offered_rate=offered * per_second,
        achieved_rate=len(answered) * per_second,
        num_requests=len(measured),
        num_ok=len(ok),
        num_unfinished=sum(s.reply.code == UNFINISHED for s in measured),
        errors=dict(sorted(Counter(s.reply.code for s in failed).items())),
        error_messages={s.reply.code: s.reply.message for s in reversed(failed)},
        min_retry_after=min(retries, default=None),
        latency=distribution(latencies),
        latency_from_sending=distribution([s.ended - s.sent for s in ok]),
        first_token=distribution([s.first_latency for s in ok if s.first_latency is not None]),
        token_gap=distribution([gap for s in ok for gap in s.reply.gaps]),
        queue=distribution([s.reply.queue_seconds for s in ok]),
        compute=distribution([s.reply.compute_seconds for s in ok]),
        goodput=sum(x <= slo.seconds for x in latencies) * per_second if slo else None,
        slo_kept=_slo_kept(slo, latencies, num_errors=len(failed)) if slo else None,
        drain_seconds=max([0.0, *(s.ended - run.seconds for s in run.samples if s.ok)]),
        texts_per_second=len(answered) * run.plan.texts_per_request * per_second,
        source_tokens_per_second=sum(s.reply.source_tokens for s in answered) * per_second,
        target_tokens_per_second=sum(s.reply.target_tokens for s in answered) * per_second,
        problems=_problems(run, measured, latencies, send_lags),
        send_lag=distribution(send_lags),
        wake_lag=distribution(run.lags),
        generator_cpu=run.cpu_seconds / run.seconds if run.seconds else 0.0,
    )


def _slo_kept(slo: Slo, latencies: Sequence[float], num_errors: int) -> bool | None:
    if num_errors:
        return False
    if len(latencies) < slo.min_samples:
        return None
    # By counting, since a histogram's rounding may not decide.
    late = sum(latency > slo.seconds for latency in latencies)
    return late <= len(latencies) * (1 - slo.percentile / 100) + 1e-9


def _problems(
    run: Run,
    measured: Sequence[RequestSample],
    latencies: Sequence[float],
    send_lags: Sequence[float],
) -> list[str]:
    """The reasons why the figures are not valid."""
    problems = []
    if run.broken_off and not run.measured_seconds:
        return [f"broken off in its warm-up, after {run.seconds:.1f} s: {run.broken_off}"]
    if run.broken_off:
        problems.append(f"broken off after {run.seconds:.1f} s: {run.broken_off}")
    elif not latencies:
        problems.append("no request was answered in the measured time")
    # The generator's delay must be small beside the latency.
    median = sorted(latencies)[len(latencies) // 2] if latencies else 0.0
    tolerated = max(_TOLERATED_LATE_SECONDS, _TOLERATED_LATE_SHARE * median)
    # Late wake-ups make late requests: one message for one cause.
    for what, lags in (("requests were sent", send_lags), ("its wake-ups came", run.lags)):
        late = sum(lag > tolerated for lag in lags)
        if late > _MAX_SHARE_LATE * len(lags):
            problems.append(
                f"the load generator could not keep up: {late / len(lags):.1%} of {what} more "
                f"than {format_seconds(tolerated)} late, the worst {format_seconds(max(lags))}; "
                "give it more --processes, a machine of its own, or a lower rate"
            )
            break
    if run.num_scheduled is not None and not run.broken_off and len(measured) < run.num_scheduled:
        problems.append(
            f"{run.num_scheduled - len(measured)} of {run.num_scheduled} requests were never sent"
        )
    return problems

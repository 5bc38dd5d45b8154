"""The rows of a run's tables, as text: the terminal and the HTML report show the same."""

from __future__ import annotations

from bench.load.results import Results
from bench.load.scrape import ServerFigures
from bench.load.statistics import PERCENTILES, Distribution, Summary
from bench.load.units import format_seconds, min_samples

Rows = list[list[str]]

LATENCY_HEADER = ["", "mean", *(f"p{p:g}" for p in PERCENTILES), "max", "samples"]


def headline(results: Results) -> str:
    """The run in one line."""
    plan = results.run.plan
    if plan.rate is not None:
        kind = plan.arrivals + (f" (burstiness {plan.burstiness:g})" * (plan.arrivals == "gamma"))
        load = f"open loop, {kind} arrivals, {plan.rate:g} requests/s"
    else:
        load = f"closed loop, {plan.concurrency} users"
    method = "StreamTranslate" if plan.stream else f"Translate, {plan.texts_per_request} text(s)"
    if plan.beam_size > 1:
        method += f", beam {plan.beam_size}"
    measured = results.run.measured_seconds
    return f"{plan.server}: {load}, {method}, {measured:.1f} s after {plan.warmup:g} s of warm-up"


def figures(results: Results, summary: Summary) -> Rows:
    """Rates, counts and errors."""
    rows = [
        ["offered", f"{summary.offered_rate:,.2f} requests/s"],
        ["achieved", f"{summary.achieved_rate:,.2f} requests/s"],
    ]
    if summary.goodput is not None and results.slo is not None:
        verdict = {True: "kept", False: "broken", None: "too few samples to say"}
        rows += [
            ["goodput", f"{summary.goodput:,.2f} requests/s within {results.slo}"],
            [f"promise {results.slo}", verdict[summary.slo_kept]],
        ]
    rows += [
        ["texts", f"{summary.texts_per_second:,.2f} /s"],
        ["tokens read", f"{summary.source_tokens_per_second:,.0f} /s"],
        ["tokens written", f"{summary.target_tokens_per_second:,.0f} /s"],
        ["requests", f"{summary.num_requests:,} ({summary.num_ok:,} answered)"],
    ]
    if summary.drain_seconds:
        rows.append(["last answer", f"{format_seconds(summary.drain_seconds)} after the end"])
    if summary.num_unfinished:
        rows.append(["broken off", f"{summary.num_unfinished:,} requests"])
    for code, count in summary.errors.items():
        example = _shorten(summary.error_messages[code])
        rows.append([f"error {code}", f"{count:,} requests, such as: {example}"])
    if not summary.errors:
        rows.append(["errors", "none"])
    late = f"wake-ups late by at most {_seconds(summary.wake_lag.max)}"
    if summary.send_lag.count:
        late += f", requests by {_seconds(summary.send_lag.max)}"
    rows.append(["generator", f"{summary.generator_cpu:.2f} cores; {late}"])
    return rows


def latencies(summary: Summary) -> Rows:
    """Percentiles of everything that takes time; see `LATENCY_HEADER`."""
    named = [
        ("latency", summary.latency),
        ("from sending", summary.latency_from_sending),
        ("to first text", summary.first_token),
        ("between texts", summary.token_gap),
        ("server: queue", summary.queue),
        ("server: compute", summary.compute),
    ]
    return [_distribution(name, one) for name, one in named if one.count]


def server(figures: ServerFigures) -> Rows:
    """The server's own metrics over the measured time."""
    rows: list[tuple[str, float | None, str]] = [
        ("queue time, mean", figures.queue_mean, "s"),
        ("queue time, p50 (roughly)", figures.queue_p50, "s"),
        ("queue time, p99 (roughly)", figures.queue_p99, "s"),
        ("sentences waiting, most seen", figures.max_waiting, ",.0f"),
        ("rows per step", figures.rows_per_step, ".2f"),
        ("rows", figures.max_rows, ".0f"),
        ("rows used in a step", figures.row_use, ".1%"),
        ("steps per second", figures.steps_per_second, ",.0f"),
        ("time in decoder steps, lanes added", figures.step_share, ".1%"),
        ("time in the encoder, lanes added", figures.encode_share, ".1%"),
        ("tokens written per second", figures.target_tokens_per_second, ",.0f"),
        ("wasted tokens", figures.wasted_tokens, ",.0f"),
        ("padding tokens", figures.padding_tokens, ",.0f"),
        ("padding beside source tokens", figures.padding_share, ".1%"),
        ("cores kept busy", figures.cpu_cores, ".2f"),
        ("resident memory, most seen", figures.max_memory_bytes, "bytes"),
    ]
    return [[name, _value(value, kind)] for name, value, kind in rows if value is not None]


def footnote() -> str:
    """The reason why some percentiles are missing."""
    return (
        "A percentile p is shown from 10/(1-p) samples on: p50 from "
        f"{min_samples(50)}, p99 from {min_samples(99):,}, p99.9 from {min_samples(99.9):,}."
    )


def _distribution(name: str, one: Distribution) -> list[str]:
    percentiles = [_seconds(one.at(p)) for p in PERCENTILES]
    return [name, _seconds(one.mean), *percentiles, _seconds(one.max), f"{one.count:,}"]


def _seconds(value: float | None) -> str:
    return "–" if value is None else format_seconds(value)


def _value(value: float, kind: str) -> str:
    if kind == "s":
        return format_seconds(value)
    if kind == "bytes":
        return f"{value / 2**20:,.0f} MiB"
    return format(value, kind)


def _shorten(text: str, most: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."

"""What a soak found: verdicts, and a report to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.load.units import format_seconds
from bench.soak.ageing import PERCENTILES, Pair, growth
from bench.soak.drift import Trend, quarters, trend
from bench.soak.minutes import Span

# Some 8 MiB of base: a leak of two bytes a token would be more in an hour.
_MEMORY_GROWTH = 0.01
_LATENCY_GROWTH = 0.10
_SETTLING_SHARE = 0.2
_SETTLING_GROWTH = 0.05
_LEAST_KNOWN = 0.9  # of the spans: what was not seen may have been different
_REFUSED, _REFUSED_SHARE = "RESOURCE_EXHAUSTED", 0.001
_MAX_LINES = 60


@dataclass(frozen=True)
class Soak:
    """A soak's outcome.

    Attributes:
        facts: rate, shares, model, machine; plain JSON values.
        spans: the series.
        percentile: that of `Span.high`.
        errors: failed requests by code; those that were cancelled on purpose are none.
        num_requests: all but those.
        num_cancelled: requests cancelled on purpose.
        left_over: what the server still held after the load, by metric; empty if nothing.
        problems: why the run is not valid.
        pairs: how it compares with a server that was just started.
    """

    facts: Mapping[str, Any]
    spans: Sequence[Span]
    percentile: float
    errors: Mapping[str, int]
    num_requests: int
    num_cancelled: int
    left_over: Mapping[str, float]
    problems: Sequence[str]
    pairs: Sequence[Pair] = ()

    def settled(self) -> list[Span]:
        """The spans after the first fifth, in which a server still grows to its working size."""
        return list(self.spans[int(len(self.spans) * _SETTLING_SHARE) :])

    def growth_of(self, figure: Callable[[Span], float | None]) -> Growth:
        """Of a figure, over the settled spans; not known where too many don't have it."""
        settled = self.settled()
        known = [(span.begin, value) for span in settled if (value := figure(span))]
        if len(known) < _LEAST_KNOWN * len(settled):
            known = []
        values = [value for _, value in known]
        return Growth(trend([begin for begin, _ in known], values), quarters(values))


@dataclass(frozen=True)
class Growth:
    """How a figure changed.

    Attributes:
        trend: None: too few spans to say.
        quarters: by what share its last quarter is above the first; None as before.
    """

    trend: Trend | None
    quarters: float | None

    def within(self, tolerated: float) -> bool:
        """Whether it surely grew by no more than this share. What is not known is not sure."""
        if self.trend is None or self.quarters is None:
            return False
        return self.trend.stays(tolerated) and self.quarters <= tolerated

    def described(self, form: Callable[[float], str]) -> str:
        """In words; `form` writes a slope."""
        one = self.trend
        if one is None or self.quarters is None:
            return "too few spans to say"
        return (
            f"{form(one.slope)}, 95 % interval {form(one.low)} to {form(one.high)}: at most "
            f"{one.share(one.high):+.1%} in all; last quarter by first {self.quarters:+.1%}"
        )


@dataclass(frozen=True)
class Verdict:
    """One thing that is asked of a soak, whether it is so, and what was found."""

    what: str
    kept: bool
    found: str


def verdicts(soak: Soak) -> list[Verdict]:
    """All that is asked."""
    memory = soak.growth_of(lambda span: span.memory_bytes)
    median = soak.growth_of(lambda span: span.p50)
    high = soak.growth_of(lambda span: span.high)
    counted = ", ".join(f"{count:,} {code}" for code, count in soak.errors.items())
    held = ", ".join(f"{name} {value:g}" for name, value in soak.left_over.items())
    return [
        Verdict(
            f"memory is flat (surely no more than {_MEMORY_GROWTH:.0%})",
            memory.within(_MEMORY_GROWTH),
            memory.described(lambda slope: f"{slope * 3600 / 2**20:+.2f} MiB an hour"),
        ),
        _filled(soak),
        *(_ageing(soak, percentile) for percentile in PERCENTILES),
        *(
            Verdict(
                f"over time, the {name} does not surely rise by more than {_LATENCY_GROWTH:.0%}",
                one.trend is not None and not one.trend.rises(_LATENCY_GROWTH),
                one.described(lambda slope: f"{slope * 3600 * 1e3:+.1f} ms an hour"),
            )
            for name, one in (("p50", median), (f"p{soak.percentile:g}", high))
        ),
        Verdict(
            f"no request fails, and at most {_REFUSED_SHARE:.1%} are refused in a burst",
            set(soak.errors) <= {_REFUSED}
            and soak.errors.get(_REFUSED, 0) <= _REFUSED_SHARE * soak.num_requests,
            f"of {soak.num_requests:,}: {counted or 'none'}",
        ),
        Verdict("nothing is left behind in the server", not soak.left_over, held or "nothing"),
        Verdict("the load was what it should be", not soak.problems, "; ".join(soak.problems)),
    ]


def _filled(soak: Soak) -> Verdict:
    """Whether the first fifth hides no growth: what fills the memory was done before it."""
    known = [span.memory_bytes for span in soak.spans if span.memory_bytes]
    found = known[-1] / known[0] - 1 if known else None
    return Verdict(
        f"memory has its size from the beginning (in all, no more than {_SETTLING_GROWTH:.0%})",
        found is not None and found <= _SETTLING_GROWTH,
        "not known" if found is None else f"{found:+.1%}",
    )


def _ageing(soak: Soak, percentile: float) -> Verdict:
    found = growth(soak.pairs, percentile)
    return Verdict(
        f"the p{percentile:g} is that of a server just started (surely no more than "
        f"{_LATENCY_GROWTH:.0%} above it)",
        found is not None and found.high <= _LATENCY_GROWTH,
        "not compared"
        if found is None
        else f"{found.mean:+.1%}, 95 % interval {found.low:+.1%} to {found.high:+.1%}, of "
        f"{len(soak.pairs)} pairs of blocks in turn",
    )


def render(soak: Soak) -> str:
    """The report as Markdown."""
    facts = soak.facts
    lines = [f"# Soak {facts['name']}", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items() if name != "name"]
    lines += [f"- cancelled on purpose: {soak.num_cancelled:,} requests", "", "## Verdict", ""]
    for one in verdicts(soak):
        found = f" ({one.found})" if one.found else ""
        lines.append(f"- {'kept' if one.kept else '**BROKEN**'}: {one.what}{found}")
    lines += ["", "## Over time", ""]
    lines += [f"| from | answered | p50 | p{soak.percentile:g} | memory |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    step = max(1, -(-len(soak.spans) // _MAX_LINES))
    for span in soak.spans[::step]:
        memory = "–" if span.memory_bytes is None else f"{span.memory_bytes / 2**20:,.1f} MiB"
        times = [_or_dash(span.p50), _or_dash(span.high)]
        cells = [format_seconds(span.begin), f"{span.num_ok:,}", *times, memory]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "Trends leave the first fifth out. Their intervals allow for the likeness of neighbouring "
        "spans. Of memory, the upper end of the interval and the median of the last quarter beside "
        "that of the first have to be within what is asked; where a soak is too short or too noisy "
        "to say, that is not kept. Whether the server has become slower is told by comparing it "
        "after the load with one that was just started, where again the upper end counts. Latency "
        "over time tells more of the machine's own speed, which near the capacity it follows "
        "manifold, so that it is asked less there: the lower end counts. It is that of unary "
        "greedy requests, from the scheduled arrival; – where there are too few samples for a "
        "percentile. `soak.json` has every span and every pair.",
        "",
    ]
    return "\n".join(lines)


def _or_dash(seconds: float | None) -> str:
    return "–" if seconds is None else format_seconds(seconds)

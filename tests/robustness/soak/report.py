"""A soak's figures, the requirements for them, and the report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.criterion import Criterion
from bench.load.units import format_seconds
from tests.robustness.soak.ageing import PERCENTILES, Pair, growth
from tests.robustness.soak.drift import Trend, quarters, trend
from tests.robustness.soak.minutes import TimeSlice

SOAK = "soak"
# Some 8 MiB of base: a leak of two bytes a token would be more in an hour.
_MEMORY_GROWTH = 0.01
_LATENCY_GROWTH = 0.10
_SETTLING_SHARE = 0.2
_SETTLING_GROWTH = 0.05
_LEAST_KNOWN = 0.9  # of the slices: what was not seen may have been different
_REFUSED, _REFUSED_SHARE = "RESOURCE_EXHAUSTED", 0.001
_MAX_LINES = 60


@dataclass(frozen=True)
class Soak:
    """The data of a soak's report.

    Attributes:
        facts: rate, shares, model, machine; plain JSON values.
        slices: series of slices.
        percentile: percentile of `TimeSlice.high`.
        errors: number of failed requests by code, without those cancelled on purpose.
        num_requests: number of requests, without those cancelled on purpose.
        num_cancelled: number of requests cancelled on purpose.
        left_over: metrics of the server that were not zero after the load, with their values.
        problems: reasons why the run is not valid; empty if it is.
        pairs: latencies of this server and of a new one.
    """

    facts: Mapping[str, Any]
    slices: Sequence[TimeSlice]
    percentile: float
    errors: Mapping[str, int]
    num_requests: int
    num_cancelled: int
    left_over: Mapping[str, float]
    problems: Sequence[str]
    pairs: Sequence[Pair] = ()

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Soak:
        """The soak from the values of `to_dict`."""
        known = {field.name: fields[field.name] for field in dataclasses.fields(cls)}
        slices = [TimeSlice(**one) for one in fields["slices"]]
        return cls(**{**known, "slices": slices, "pairs": [Pair(**one) for one in fields["pairs"]]})

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"benchmark": SOAK, **dataclasses.asdict(self)}

    def settled(self) -> list[TimeSlice]:
        """The slices after the first fifth, in which a server still grows to its working size."""
        return list(self.slices[int(len(self.slices) * _SETTLING_SHARE) :])

    def growth_of(self, figure: Callable[[TimeSlice], float | None]) -> Growth:
        """The growth of a figure over the settled slices; unknown if too many lack it."""
        settled = self.settled()
        known = [(one.begin, value) for one in settled if (value := figure(one))]
        if len(known) < _LEAST_KNOWN * len(settled):
            known = []
        values = [value for _, value in known]
        return Growth(trend([begin for begin, _ in known], values), quarters(values))


@dataclass(frozen=True)
class Growth:
    """The growth of a figure.

    Attributes:
        trend: trend of the figure; None with too few slices.
        quarters: fraction by which its last quarter is above the first; None with too few slices.
    """

    trend: Trend | None
    quarters: float | None

    def within(self, tolerated: float) -> bool:
        """Whether it surely grew by no more than this fraction; False if unknown."""
        if self.trend is None or self.quarters is None:
            return False
        return self.trend.stays(tolerated) and self.quarters <= tolerated

    def described(self, form: Callable[[float], str]) -> str:
        """The growth in words; `form` formats a slope."""
        one = self.trend
        if one is None or self.quarters is None:
            return "too few slices to say"
        return (
            f"{form(one.slope)}, 95 % interval {form(one.low)} to {form(one.high)}: at most "
            f"{one.share(one.high):+.1%} in all; last quarter by first {self.quarters:+.1%}"
        )


def criteria(soak: Soak) -> list[Criterion]:
    """All requirements."""
    memory = soak.growth_of(lambda one: one.memory_bytes)
    median = soak.growth_of(lambda one: one.p50)
    high = soak.growth_of(lambda one: one.high)
    counted = ", ".join(f"{count:,} {code}" for code, count in soak.errors.items())
    held = ", ".join(f"{name} {value:g}" for name, value in soak.left_over.items())
    return [
        Criterion(
            f"memory is flat (surely no more than {_MEMORY_GROWTH:.0%})",
            memory.within(_MEMORY_GROWTH),
            memory.described(lambda slope: f"{slope * 3600 / 2**20:+.2f} MiB an hour"),
        ),
        _filled(soak),
        *(_ageing(soak, percentile) for percentile in PERCENTILES),
        *(
            Criterion(
                f"over time, the {name} does not surely rise by more than {_LATENCY_GROWTH:.0%}",
                one.trend is not None and not one.trend.rises(_LATENCY_GROWTH),
                one.described(lambda slope: f"{slope * 3600 * 1e3:+.1f} ms an hour"),
            )
            for name, one in (("p50", median), (f"p{soak.percentile:g}", high))
        ),
        Criterion(
            f"no request fails, and at most {_REFUSED_SHARE:.1%} are refused in a burst",
            set(soak.errors) <= {_REFUSED}
            and soak.errors.get(_REFUSED, 0) <= _REFUSED_SHARE * soak.num_requests,
            f"of {soak.num_requests:,}: {counted or 'none'}",
        ),
        Criterion("nothing is left behind in the server", not soak.left_over, held or "nothing"),
        Criterion("the load was what it should be", not soak.problems, "; ".join(soak.problems)),
    ]


def _filled(soak: Soak) -> Criterion:
    """Memory growth over all slices: the first fifth must not hide any."""
    known = [one.memory_bytes for one in soak.slices if one.memory_bytes]
    found = known[-1] / known[0] - 1 if known else None
    return Criterion(
        f"memory has its size from the beginning (in all, no more than {_SETTLING_GROWTH:.0%})",
        found is not None and found <= _SETTLING_GROWTH,
        "not known" if found is None else f"{found:+.1%}",
    )


def _ageing(soak: Soak, percentile: float) -> Criterion:
    found = growth(soak.pairs, percentile)
    return Criterion(
        f"the p{percentile:g} is that of a server just started (surely no more than "
        f"{_LATENCY_GROWTH:.0%} above it)",
        found is not None and found.high <= _LATENCY_GROWTH,
        "not compared"
        if found is None
        else f"{found.mean:+.1%}, 95 % interval {found.low:+.1%} to {found.high:+.1%}, of "
        f"{len(soak.pairs)} pairs of blocks in turn",
    )


def files(summary: Mapping[str, Any]) -> dict[str, str]:
    """The files of the report, by name."""
    return {"report.md": render(Soak.from_dict(summary))}


def render(soak: Soak) -> str:
    """The report as Markdown."""
    facts = soak.facts
    lines = [f"# Soak {facts['name']}", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items() if name != "name"]
    lines += [f"- cancelled on purpose: {soak.num_cancelled:,} requests", "", "## Verdict", ""]
    lines += [f"- {one}" for one in criteria(soak)]
    lines += ["", "## Over time", ""]
    lines += [f"| from | answered | p50 | p{soak.percentile:g} | memory |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    step = max(1, -(-len(soak.slices) // _MAX_LINES))
    for one in soak.slices[::step]:
        memory = "–" if one.memory_bytes is None else f"{one.memory_bytes / 2**20:,.1f} MiB"
        times = [_or_dash(one.p50), _or_dash(one.high)]
        cells = [format_seconds(one.begin), f"{one.num_ok:,}", *times, memory]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "Trends leave the first fifth out. Their intervals allow for the autocorrelation of "
        "neighbouring slices. Memory is flat if both the upper end of its interval and the growth "
        "from the first quarter's median to the last's are within the limit; a soak that is too "
        "short or too noisy to tell fails. Ageing is measured after the load, beside a server that "
        "was just started; there the upper end counts, too. Latency over time follows the "
        "machine's own speed, manifold near the capacity, so only the lower end counts there. It "
        "is that of unary greedy requests, from the scheduled arrival; – stands where there are "
        "too few samples for a percentile. `summary.json` has every slice and every pair.",
        "",
    ]
    return "\n".join(lines)


def _or_dash(seconds: float | None) -> str:
    return "–" if seconds is None else format_seconds(seconds)

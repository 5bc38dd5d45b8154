"""The figures of a report by load and system, from raw samples or from a summary.

Raw samples lie in a run's folder and are not kept in the repository; `Cell` holds all that the
tables need of them, as plain values.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.load.host import other_cores
from bench.load.results import RUN_FILE, Results, read_results
from bench.load.statistics import (
    Distribution,
    distribution,
    histogram,
    percentile_of,
)

# Share of the answers of a run. Speed is a model's, so texts that a server copies measure nothing.
_MOST_COPIED = 0.01

RawRuns = Mapping[tuple[str, str], Sequence[Results]]
"""The runs of one model by load and system, one a repetition."""


@dataclass(frozen=True)
class RunFigures:
    """The figures of one run. Those of the server are None where it did not give them.

    Attributes:
        requests_per_second, texts_per_second, tokens_per_second: rates of answers.
        num_ok: requests answered.
        errors: requests that failed, by gRPC code; a refusal is a failure.
        num_retry_hints: failures whose details say when to try again.
        drain_seconds: time from the end of the load to the last answer.
        recovery_seconds: time from the end of the load until no sentence waits for a row.
        problems: reason why the run is not valid; empty if it is.
        broken_off: reason why the run ended early; "" if it did not.
        other_cores: cores kept busy by neither server nor generator.
        queue_seconds: mean time that a sentence waited.
        rows_per_step: mean number of rows in a step.
        padding_share: padding divided by the tokens that the encoder read.
        wasted_tokens: tokens of calls that ended without an answer.
        cpu_cores: cores that the server kept busy.
        tokens_per_cpu_second: target tokens per second of the server's CPU time.
        memory_bytes: most resident memory of the server.
        memory_growth: relative growth of the resident memory; see `memory_growth`.
    """

    requests_per_second: float
    texts_per_second: float
    tokens_per_second: float
    num_ok: int
    errors: Mapping[str, int]
    num_retry_hints: int
    drain_seconds: float
    recovery_seconds: float
    problems: Sequence[str]
    broken_off: str
    other_cores: float | None
    queue_seconds: float | None
    rows_per_step: float | None
    padding_share: float | None
    wasted_tokens: float | None
    cpu_cores: float | None
    tokens_per_cpu_second: float | None
    memory_bytes: float | None
    memory_growth: float | None

    @property
    def num_errors(self) -> int:
        """Requests that failed."""
        return sum(self.errors.values())

    @classmethod
    def of(cls, results: Results) -> RunFigures:
        """The figures that follow from a run's samples and scrapes."""
        summary, server = results.summary(), results.server()
        tokens, cores = (
            (server.target_tokens_per_second, server.cpu_cores) if server else (None, None)
        )
        return cls(
            requests_per_second=summary.achieved_rate,
            texts_per_second=summary.texts_per_second,
            tokens_per_second=summary.target_tokens_per_second,
            num_ok=summary.num_ok,
            errors=summary.errors,
            num_retry_hints=sum(
                s.failed and s.reply.retry_after is not None for s in results.run.measured()
            ),
            drain_seconds=summary.drain_seconds,
            recovery_seconds=recovery_seconds(results),
            problems=[*summary.problems, *_not_computed(results)],
            broken_off=results.run.broken_off,
            other_cores=others(results),
            queue_seconds=server.queue_mean if server else None,
            rows_per_step=server.rows_per_step if server else None,
            padding_share=server.padding_share if server else None,
            wasted_tokens=server.wasted_tokens if server else None,
            cpu_cores=cores,
            tokens_per_cpu_second=tokens / cores if tokens and cores else None,
            memory_bytes=server.max_memory_bytes if server else None,
            memory_growth=memory_growth(results),
        )


def _not_computed(results: Results) -> list[str]:
    """A problem if the server answered texts without the model, since it copied or kept them."""
    answered = results.run.answered()
    copied = sum(sample.reply.target_tokens == 0 for sample in answered)
    if copied <= _MOST_COPIED * len(answered):
        return []
    return [f"{copied} of {len(answered)} answers hold no token of the model"]


@dataclass(frozen=True)
class Cell:
    """All runs of one system at one load.

    Attributes:
        runs: one a repetition.
        latency: latency of the answered requests of all runs, since a percentile needs many.
        p99_with_failed: seconds; that of all requests of all runs, where a failed one counts as
            infinitely late, so that refusing slow requests does not lower it. At least
            `statistics.MAX_SECONDS` where more failed than lie above the percentile; None where
            there are too few samples.
    """

    load: str
    system: str
    settings: Mapping[str, Any]
    runs: Sequence[RunFigures]
    latency: Distribution
    p99_with_failed: float | None

    @classmethod
    def of(cls, load: str, system: str, runs: Sequence[Results]) -> Cell:
        """The figures of raw runs."""
        ended = [s for one in runs for s in one.run.measured() if s.ok or s.failed]
        late = histogram(s.latency if s.ok else math.inf for s in ended)
        return cls(
            load,
            system,
            runs[0].about.get("system", {}).get("settings", {}),
            [RunFigures.of(results) for results in runs],
            pooled_latency(runs),
            percentile_of(late, 99.0),
        )

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Cell:
        """The cell that `dataclasses.asdict` gave."""
        return cls(
            **{
                **fields,
                "runs": [RunFigures(**run) for run in fields["runs"]],
                "latency": Distribution(**fields["latency"]),
            }
        )

    @cached_property
    def num_failed(self) -> int:
        """Failed requests of all runs."""
        return sum(run.num_errors for run in self.runs)

    @property
    def failed_share(self) -> float:
        """The share of ended requests that failed; 0 without any."""
        num_ended = self.num_failed + sum(run.num_ok for run in self.runs)
        return self.num_failed / num_ended if num_ended else 0.0

    @property
    def other_cores(self) -> list[float]:
        """Cores that something else kept busy, of each run of which that is known."""
        return [run.other_cores for run in self.runs if run.other_cores is not None]

    def median(self, figure: str) -> float | None:
        """The median of one of the figures over the runs; see `average`."""
        return average(getattr(run, figure) for run in self.runs)


def pooled_latency(runs: Iterable[Results]) -> Distribution:
    """The latency of the answered requests of all runs together."""
    return distribution([s.latency for one in runs for s in one.run.measured() if s.ok])


def others(results: Results) -> float | None:
    """Cores that neither server nor generator kept busy during a run; None if it is not known."""
    host, server = results.about.get("host"), results.server()
    if host is None or server is None or server.cpu_cores is None:
        return None
    return other_cores(host, results.run.cpu_seconds, server.cpu_cores)


def memory_growth(results: Results) -> float | None:
    """Growth of the resident memory from a run's second quarter to its last, a share.

    None where there are too few scrapes.
    """
    memory = [
        snapshot.values["process_resident_memory_bytes"]
        for snapshot in results.snapshots
        if "process_resident_memory_bytes" in snapshot.values
        and results.run.plan.warmup <= snapshot.seconds <= results.run.seconds
    ]
    if len(memory) < 4:
        return None
    quarter = len(memory) // 4
    early = statistics.median(memory[quarter : 2 * quarter])
    return statistics.median(memory[-quarter:]) / early - 1


def recovery_seconds(results: Results) -> float:
    """Seconds from the end of the load until the last sentence had left the queue."""
    left_queue = (s.sent + s.reply.queue_seconds for s in results.run.samples if s.ok)
    return max([0.0, *(when - results.run.seconds for when in left_queue)])


def read_runs(directory: Path) -> dict[str, RawRuns]:
    """The raw runs in a run's folder by the name of the model."""
    found: dict[str, dict[tuple[str, str], list[Results]]] = defaultdict(lambda: defaultdict(list))
    for file in run_files(directory):
        results = read_results(file.parent)
        model = f"{results.about['model']} {results.about['precision']}"
        found[model][results.about["load"], results.about["system"]["name"]].append(results)
    return {model: dict(runs) for model, runs in found.items()}


def run_files(directory: Path) -> list[Path]:
    """The `run.json` of every raw run in a run's folder."""
    return sorted((directory / "runs").glob(f"*/*/*/*/{RUN_FILE}"))


def cells_of(runs: RawRuns) -> list[Cell]:
    """The cells of one model, by search, kind of load, amount, system."""
    return [Cell.of(*key, runs[key]) for key in sorted(runs, key=_order)]


def find(cells: Iterable[Cell], load: str, system: str) -> Cell | None:
    """One of the cells."""
    return next((cell for cell in cells if (cell.load, cell.system) == (load, system)), None)


def average(values: Iterable[float | None]) -> float | None:
    """The median; None if any is missing: that of some of the runs would favour the lucky ones."""
    known = list(values)
    if not known or any(value is None for value in known):
        return None
    return statistics.median(value for value in known if value is not None)


def _order(key: tuple[str, str]) -> tuple[int, str, int, str]:
    load, system = key
    kind, _, rest = load.partition("-")
    amount, beam = re.fullmatch(r"(\d+)(?:pct)?(?:-beam(\d+))?", rest).groups()  # type: ignore[union-attr]
    return int(beam or 1), kind, int(amount), system

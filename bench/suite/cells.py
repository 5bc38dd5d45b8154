"""The raw samples of a report, by load and system."""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bench.load.host import other_cores
from bench.load.results import RUN_FILE, Results, read_results
from bench.load.scrape import ServerFigures
from bench.load.statistics import (
    MAX_SECONDS,
    Distribution,
    Summary,
    distribution,
    histogram,
    percentile_of,
    summarise,
)


@dataclass(frozen=True)
class Cell:
    """All runs of one system at one load.

    Attributes:
        load, system: which.
        runs: the results, one a repetition.
    """

    load: str
    system: str
    runs: Sequence[Results]

    @cached_property
    def summaries(self) -> list[Summary]:
        """The figures of each run."""
        return [summarise(results.run, results.slo) for results in self.runs]

    @cached_property
    def servers(self) -> list[ServerFigures]:
        """The server's own figures of each run."""
        return [server for results in self.runs if (server := results.server()) is not None]

    @cached_property
    def latency(self) -> Distribution:
        """Of the requests of all runs together: a percentile needs many."""
        ok = (s for results in self.runs for s in results.run.measured() if s.ok)
        return distribution([sample.latency for sample in ok])

    @cached_property
    def num_failed(self) -> int:
        """Requests of all runs that ended in an error; a refusal is one."""
        return sum(summary.num_errors for summary in self.summaries)

    @property
    def failed_share(self) -> float:
        """The same as a share of those that were answered or failed; 0 without any."""
        num_ended = self.num_failed + sum(summary.num_ok for summary in self.summaries)
        return self.num_failed / num_ended if num_ended else 0.0

    def latency_with_failed(self, percentile: float) -> float | None:
        """A percentile in seconds over all requests of all runs; those that failed took for ever.

        So that who refuses what would be late is not the quicker for it. Infinite where more
        failed than lie above the percentile; None where there are too few samples to say.
        """
        ended = [s for results in self.runs for s in results.run.measured() if s.ok or s.failed]
        found = percentile_of(histogram(s.latency if s.ok else math.inf for s in ended), percentile)
        return math.inf if found is not None and found >= MAX_SECONDS else found

    @cached_property
    def others(self) -> list[float]:
        """Cores that something else kept busy, in each run of which that is known."""
        return [cores for results in self.runs if (cores := others(results)) is not None]

    @property
    def settings(self) -> str:
        """Of the system, as text."""
        settings = self.runs[0].about["system"]["settings"]
        return ", ".join(f"{name} {value}" for name, value in settings.items()) or "defaults"


def others(results: Results) -> float | None:
    """Cores that neither server nor generator kept busy during a run; None if it is not known."""
    host, server = results.about.get("host"), results.server()
    if host is None or server is None or server.cpu_cores is None:
        return None
    return other_cores(host, results.run.cpu_seconds, server.cpu_cores)


def read_cells(directory: Path) -> dict[str, list[Cell]]:
    """Every cell of a report by the name of its model."""
    found: dict[str, dict[tuple[str, str], list[Results]]] = defaultdict(lambda: defaultdict(list))
    for file in sorted((directory / "runs").glob(f"*/*/*/*/{RUN_FILE}")):
        results = read_results(file.parent)
        model = f"{results.about['model']} {results.about['precision']}"
        found[model][results.about["load"], results.about["system"]["name"]].append(results)
    return {
        model: [
            Cell(load, system, runs) for (load, system), runs in sorted(cells.items(), key=_order)
        ]
        for model, cells in found.items()
    }


def find(cells: Iterable[Cell], load: str, system: str) -> Cell | None:
    """One of the cells."""
    return next((cell for cell in cells if (cell.load, cell.system) == (load, system)), None)


def average(values: Iterable[float | None]) -> float | None:
    """The median; None if any is missing: that of some of the runs would favour the lucky ones."""
    known = list(values)
    if not known or any(value is None for value in known):
        return None
    return statistics.median(value for value in known if value is not None)


def _order(item: tuple[tuple[str, str], list[Results]]) -> tuple[int, str, int, str]:
    """By search, kind of load, amount, system."""
    (load, system), _ = item
    kind, _, rest = load.partition("-")
    amount, beam = re.fullmatch(r"(\d+)(?:pct)?(?:-beam(\d+))?", rest).groups()  # type: ignore[union-attr]
    return int(beam or 1), kind, int(amount), system

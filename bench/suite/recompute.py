"""All tables of a report from its raw samples: `python -m bench.suite.recompute DIRECTORY`.

Nothing but the files under runs/ is read, so anybody can check a report, or ask it something else.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench.load.results import RUN_FILE, Results, read_results
from bench.load.scrape import ServerFigures
from bench.load.statistics import Summary, summarise
from bench.load.units import format_seconds
from bench.suite import agreement

REPORT = "report.md"
REFERENCE_FILE = "reference.json"
AGREEMENT_FILE = "agreement.json"
README_BEGIN = "<!-- benchmark: begin -->"
README_END = "<!-- benchmark: end -->"

_HEADER = [
    "load", "system", "requests/s", "tokens/s", "p50", "p99", "max", "errors", "rows a step",
    "cores", "memory", "drained in", "runs",
]  # fmt: skip


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

    def summaries(self) -> list[Summary]:
        """The figures of each run."""
        return [summarise(results.run, results.slo) for results in self.runs]

    def servers(self) -> list[ServerFigures]:
        """The server's own figures of each run."""
        return [server for results in self.runs if (server := results.server()) is not None]

    @property
    def settings(self) -> str:
        """Of the system, as text."""
        settings = self.runs[0].about["system"]["settings"]
        return ", ".join(f"{name} {value}" for name, value in settings.items()) or "defaults"


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


def _order(item: tuple[tuple[str, str], list[Results]]) -> tuple[str, int, str]:
    (load, system), _ = item
    kind, _, amount = load.partition("-")
    return kind, int("".join(filter(str.isdigit, amount))), system


def row(cell: Cell) -> list[str]:
    """A cell as text: means over its runs; of maxima the largest."""
    summaries, servers = cell.summaries(), cell.servers()
    invalid = sum(not summary.valid for summary in summaries)
    return [
        cell.load,
        cell.system,
        _mean((s.achieved_rate for s in summaries), "{:.2f}"),
        _mean((s.target_tokens_per_second for s in summaries), "{:,.0f}"),
        _seconds(s.latency.at(50) for s in summaries),
        _seconds(s.latency.at(99) for s in summaries),
        format_seconds(max((s.latency.max or 0.0 for s in summaries), default=0.0)),
        str(sum(s.num_errors for s in summaries)),
        _mean((s.rows_per_step for s in servers), "{:.1f}"),
        _mean((s.cpu_cores for s in servers), "{:.2f}"),
        _mean((_mebibytes(s.max_memory_bytes) for s in servers), "{:,.0f} MiB"),
        format_seconds(max((s.drain_seconds for s in summaries), default=0.0)),
        f"{len(summaries)}" + (f" ({invalid} not valid)" if invalid else ""),
    ]


def render(directory: Path) -> str:
    """The report as Markdown."""
    parts = [f"# Benchmark {directory.name}", "", _machine(directory), ""]
    for model, cells in read_cells(directory).items():
        parts += [f"## {model}", "", *_reference(directory, model), *_table(cells), ""]
        parts += ["### Where we lose", "", *_losses(cells), "", "### Settings", ""]
        parts += [f"- {cell.load}, {cell.system}: {cell.settings}" for cell in cells] + [""]
    parts += [
        "Means over the runs; latency counts from the scheduled arrival; – where there are too "
        "few samples for a percentile. Runs that are not valid are those in which the load "
        "generator could not keep its schedule. The server and the generator share the machine. "
        "CTranslate2's rows a step are its sequences a batch. Drained in: the time from the end of "
        "the load to its last answer, the longest of the runs.",
        "",
    ]
    return "\n".join(parts)


def write_report(directory: Path) -> None:
    """Write the report beside the runs."""
    (directory / REPORT).write_text(render(directory), encoding="utf-8")


def update_readme(readme: Path, directory: Path) -> None:
    """Put the tables between the two marks in a README.

    Raises:
        ValueError: the marks are not there.
    """
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(README_BEGIN)
    _, end, after = rest.partition(README_END)
    if not begin or not end:
        raise ValueError(f"{readme} has no {README_BEGIN} and {README_END}")
    tables = []
    for model, cells in read_cells(directory).items():
        tables += [f"**{model}**", "", *_table(cells), ""]
    body = "\n".join(["", _machine(directory), "", *tables])
    readme.write_text(f"{before}{begin}\n{body}{end}{after}", encoding="utf-8")


def _table(cells: Sequence[Cell]) -> list[str]:
    lines = [_HEADER, ["---"] * len(_HEADER), *(row(cell) for cell in cells)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _losses(cells: Sequence[Cell]) -> list[str]:
    """Where a peer is better than we are, in throughput or in the median."""
    lines = []
    ours = {cell.load: cell for cell in cells if cell.system == "dragoman"}
    for cell in cells:
        own = ours.get(cell.load)
        if own is None or cell is own:
            continue
        rate, theirs = (
            _average(s.target_tokens_per_second for s in c.summaries()) for c in (own, cell)
        )
        closed = cell.load.startswith("closed")
        if closed and rate is not None and theirs is not None and theirs > rate:
            lines.append(
                f"- {cell.load}: {cell.system} writes {theirs / rate:.2f} times our tokens"
            )
        for percentile in (50.0, 99.0):
            mine, other = (
                _average(s.latency.at(percentile) for s in c.summaries()) for c in (own, cell)
            )
            if mine is not None and other is not None and other < mine:
                lines.append(
                    f"- {cell.load}: {cell.system}'s p{percentile:g} is {other / mine:.2f} of ours"
                )
    return lines or ["Nowhere in this report."]


def _reference(directory: Path, model: str) -> list[str]:
    base = directory / "runs" / model.replace(" ", "-")
    lines = []
    if (base / REFERENCE_FILE).exists():
        facts = json.loads((base / REFERENCE_FILE).read_text())
        lines.append(f"Open loops are shares of {facts['what']}: {facts['rate']:.2f} requests/s.")
    if (base / AGREEMENT_FILE).exists():
        lines.append(f"{agreement.read(base / AGREEMENT_FILE)}.")
    return [*lines, ""]


def _machine(directory: Path) -> str:
    for file in sorted((directory / "runs").glob(f"*/*/*/*/{RUN_FILE}")):
        about = json.loads(file.read_text())["about"]
        return (
            f"{about['processor']}, {about['cpus']} CPUs, {about['operating_system']}, Python "
            f"{about['python']}; begun {about['started_at']} at a load average of "
            f"{about['load_average']:.2f}."
        )
    return "No run has ended yet."


def _average(values: Iterable[float | None]) -> float | None:
    """None if any is missing: a mean of some of the runs would favour the lucky ones."""
    known = list(values)
    if not known or any(value is None for value in known):
        return None
    return sum(value for value in known if value is not None) / len(known)


def _mean(values: Iterable[float | None], form: str) -> str:
    average = _average(values)
    return "–" if average is None else form.format(average)


def _seconds(values: Iterable[float | None]) -> str:
    average = _average(values)
    return "–" if average is None else format_seconds(average)


def _mebibytes(size: float | None) -> float | None:
    return None if size is None else size / 2**20


def main(
    directory: Annotated[Path, typer.Argument(help="A directory under bench/reports/.")],
    readme: Annotated[Path | None, typer.Option(help="A README to put the tables into.")] = None,
) -> None:
    """Recompute a report's tables from its raw samples."""
    write_report(directory)
    if readme is not None:
        update_readme(readme, directory)
    typer.echo(str(directory / REPORT))


if __name__ == "__main__":
    typer.run(main)

"""All tables of a report from its raw samples: `python -m bench.suite.recompute DIRECTORY`.

Nothing but the files of the runs is read, so anybody can check a report, or ask it something else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from bench.engine import table as engine_table
from bench.load.results import RUN_FILE
from bench.load.units import format_seconds
from bench.suite import agreement, losses, overload
from bench.suite.cells import Cell, average, read_cells
from bench.suite.points import OWN, PEER

REPORT = "report.md"
SUITE_FILE = "suite.json"
README_BEGIN = "<!-- benchmark: begin -->"
README_END = "<!-- benchmark: end -->"

_SUMMARY_LOADS = ("closed-1", "closed-64", "open-80pct")
_QUIET_CORES = 0.15

_HEADER = [
    "load", "system", "requests/s", "tokens/s", "p50", "p90", "p99", "max", "errors", "queue",
    "rows a step", "padding", "wasted", "cores", "others", "memory", "drained in", "runs",
]  # fmt: skip


def row(cell: Cell) -> list[str]:
    """A cell as text: medians over its runs, percentiles of all together, of maxima the largest."""
    summaries, servers = cell.summaries, cell.servers
    invalid = sum(not summary.valid for summary in summaries)
    return [
        cell.load,
        cell.system,
        _mean((s.achieved_rate for s in summaries), "{:.2f}"),
        _mean((s.target_tokens_per_second for s in summaries), "{:,.0f}"),
        *(_seconds(cell.latency.at(percentile)) for percentile in (50, 90, 99)),
        _seconds(cell.latency.max),
        str(sum(s.num_errors for s in summaries)),
        _seconds(average(s.queue_mean for s in servers)),
        _mean((s.rows_per_step for s in servers), "{:.1f}"),
        "–" if cell.system == PEER else _mean((s.padding_share for s in servers), "{:.0%}"),
        _mean((s.wasted_tokens for s in servers), "{:,.0f}"),
        _mean((s.cpu_cores for s in servers), "{:.2f}"),
        f"{max(cell.others):.2f}" if cell.others else "–",
        _mean((_mebibytes(s.max_memory_bytes) for s in servers), "{:,.0f} MiB"),
        format_seconds(max((s.drain_seconds for s in summaries), default=0.0)),
        f"{len(summaries)}" + (f" ({invalid} not valid)" if invalid else ""),
    ]


def render(directory: Path) -> str:
    """The report as Markdown."""
    parts = [f"# Benchmark {directory.name}", "", _machine(directory), ""]
    models = read_cells(directory)
    if _is_of_engine(directory):
        parts += ["## Against CTranslate2", "", *engine_table.render(directory, models), ""]
    parts += _doubts(directory, models)
    for model, cells in models.items():
        parts += [f"## {model}", "", *_reference(directory, model), *_table(cells), ""]
        parts += ["### Where we lose", "", *losses.render(cells), ""]
        if verdicts := overload.verdicts(cells):
            parts += ["### Overload", "", *(f"- {verdict}" for verdict in verdicts), ""]
        parts += ["### Settings", ""]
        for cell in cells:
            origin = _origin(directory, model, cell) if cell.system == PEER else ""
            parts.append(f"- {cell.load}, {cell.system}: {cell.settings}{origin}")
        parts.append("")
    parts += [
        "Medians over the runs (of two, their mean), percentiles of the requests of all runs "
        "together; latency counts from the scheduled arrival; – where there are too few samples"
        " for a percentile. Runs that are not valid are those in which the load generator could"
        " not keep its schedule. The server and the generator share the machine. Queue: mean "
        "time that a sentence waited. CTranslate2's rows a step are its sequences a batch. "
        "Padding: positions that the encoder computed for nothing, beside the tokens that it "
        "read; CTranslate2 does not say. Wasted: tokens written for calls that ended without an"
        " answer. Others: cores that neither the server nor the generator kept busy, the most "
        "in a run. Drained in: the time from the end of the load to its last answer, the "
        "longest of the runs. `sweep/` has every setting of CTranslate2 that was tried, what "
        "came of it, and where candidates were taken from another sweep, which.",
        "",
    ]
    return "\n".join(parts)


def _origin(directory: Path, model: str, cell: Cell) -> str:
    """How CTranslate2's settings were found, where the sweep at that load did not try all."""
    file = directory / "sweep" / model.replace(" ", "-") / cell.load / "sweep.json"
    if not file.exists():
        return ""
    facts = json.loads(file.read_text(encoding="utf-8"))
    if "candidates_from" not in facts:
        return ""
    sweeps = " and ".join(facts["candidates_from"])
    tried = sum(len(runs) for runs in facts["rounds"])
    return f" (the best of {tried} from {sweeps})" if tried else f" (as at {sweeps})"


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
    models = read_cells(directory)
    if _is_of_engine(directory):
        tables = [*engine_table.render(directory, models), ""]
    else:
        tables = [*_summary_table(models), "", *losses.summary(models), ""]
    body = "\n".join(["", _machine(directory), "", *tables])
    readme.write_text(f"{before}{begin}\n{body}{end}{after}", encoding="utf-8")


def _table(cells: Sequence[Cell]) -> list[str]:
    lines = [_HEADER, ["---"] * len(_HEADER), *(row(cell) for cell in cells)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _summary_table(models: Mapping[str, Sequence[Cell]]) -> list[str]:
    """Ours beside CTranslate2 in few lines: one user, many, and arrivals."""
    header = ["model", "load", "tokens/s: ours", "CTranslate2", "p50: ours", "CTranslate2"]
    header += ["p90: ours", "CTranslate2", "failed: ours", "CTranslate2"]
    lines = [header, ["---"] * len(header)]
    for model, cells in models.items():
        for own, peer in losses.pairs(cells):
            if own.load.partition("-beam")[0] not in _SUMMARY_LOADS:
                continue
            pair = (own, peer)
            lines.append(
                [
                    model,
                    own.load,
                    *(
                        _mean((s.target_tokens_per_second for s in c.summaries), "{:,.0f}")
                        for c in pair
                    ),
                    *(_seconds(c.latency.at(50)) for c in pair),
                    *(_seconds(c.latency.at(90)) for c in pair),
                    *(str(c.num_failed) for c in pair),
                ]
            )
    return ["| " + " | ".join(line) + " |" for line in lines]


def _doubts(directory: Path, models: Mapping[str, Sequence[Cell]]) -> list[str]:
    """What is missing in this report, or may not be believed."""
    lines = [f"- not measured: {problem}" for problem in _problems(directory)]
    for model, cells in models.items():
        for cell in cells:
            what = f"{model}, {cell.load}, {cell.system}"
            broken = {r.run.broken_off for r in cell.runs if r.run.broken_off}
            lines += [f"- {what}: a run was broken off: {why}" for why in sorted(broken)]
            invalid = [p for summary in cell.summaries for p in summary.problems[:1]]
            if invalid:
                count = f"{len(invalid)} of {len(cell.runs)} runs"
                lines.append(f"- {what}: {count} not valid, such as: {invalid[0]}")
            disturbed = [cores for cores in cell.others if cores > _QUIET_CORES]
            if disturbed:
                lines.append(
                    f"- {what}: {len(disturbed)} of {len(cell.runs)} runs beside something else "
                    f"that kept up to {max(disturbed):.2f} cores busy"
                )
        once = {cell.load for cell in cells if _may_repeat(cell) and len(cell.runs) == 1}
        repeated = {cell.load for cell in cells if _may_repeat(cell)} - once
        if once and any(len(cell.runs) > 1 for found in models.values() for cell in found):
            lines.append(f"- {model}: {len(once)} loads measured once, {len(repeated)} repeatedly")
    return ["## What is missing or disturbed", "", *lines, ""] if lines else []


def _may_repeat(cell: Cell) -> bool:
    return cell.system in (OWN, PEER)


def _problems(directory: Path) -> list[str]:
    file = directory / SUITE_FILE
    if not file.exists():
        return []
    return list(json.loads(file.read_text(encoding="utf-8")).get("problems", []))


def _reference(directory: Path, model: str) -> list[str]:
    base = directory / "runs" / model.replace(" ", "-")
    lines = []
    for file in sorted(base.glob("*reference*.json")):
        facts = json.loads(file.read_text(encoding="utf-8"))
        whose = "own-…pct" if file.name.startswith("own") else "open-…pct"
        beam = file.stem.partition("-beam")[2]
        search = f" with beam {beam}" if beam else ""
        lines.append(
            f"- {whose}{search} are shares of {facts['what']}: {facts['rate']:.2f} requests/s."
        )
    for file in sorted(base.glob("agreement*.json")):
        beam = file.stem.partition("-beam")[2]
        lines.append(f"- {agreement.read(file)}{f', with beam {beam}' if beam else ''}.")
    return [*lines, ""]


def _machine(directory: Path) -> str:
    files = sorted((directory / "runs").glob(f"*/*/*/*/{RUN_FILE}"))
    abouts = [json.loads(file.read_text())["about"] for file in files]
    if not abouts:
        return "No run has ended yet."
    first = min(abouts, key=lambda about: str(about["started_at"]))
    versions = [f"Python {first['python']}"]
    for name, key in (("ONNX Runtime", "onnxruntime"), ("CTranslate2", "ctranslate2")):
        if found := sorted({about[key] for about in abouts if key in about}):
            versions.append(f"{name} {', '.join(found)}")
    # More than one, where a benchmark was interrupted and went on with other code.
    revisions = sorted({about.get("revision", "not recorded") for about in abouts})
    versions.append(f"revision {', '.join(revisions)}")
    return (
        f"{first['processor']}, {first['cpus']} CPUs, {first['operating_system']}, "
        f"{', '.join(versions)}; begun {first['started_at']} at a load average of "
        f"{first['load_average']:.2f}."
    )


def _is_of_engine(directory: Path) -> bool:
    file = directory / SUITE_FILE
    return file.exists() and json.loads(file.read_text())["suite"] == engine_table.SUITE


def _mean(values: Iterable[float | None], form: str) -> str:
    found = average(values)
    return "–" if found is None else form.format(found)


def _seconds(value: float | None) -> str:
    return "–" if value is None else format_seconds(value)


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

"""The report of the suite and of the engine benchmark: figures from raw runs, and their tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.load.units import format_seconds
from bench.suite import agreement, engine_table, losses, overload
from bench.suite.cells import Cell, cells_of, read_runs, run_files
from bench.suite.points import OWN, PEER

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
    """A cell as text: medians over its runs, pooled percentiles, and the largest of maxima."""
    invalid = sum(bool(run.problems) for run in cell.runs)
    memory = cell.median("memory_bytes")
    return [
        cell.load,
        cell.system,
        _text(cell.median("requests_per_second"), "{:.2f}"),
        _text(cell.median("tokens_per_second"), "{:,.0f}"),
        *(_seconds(cell.latency.at(percentile)) for percentile in (50, 90, 99)),
        _seconds(cell.latency.max),
        str(cell.num_failed),
        _seconds(cell.median("queue_seconds")),
        _text(cell.median("rows_per_step"), "{:.1f}"),
        "–" if cell.system == PEER else _text(cell.median("padding_share"), "{:.0%}"),
        _text(cell.median("wasted_tokens"), "{:,.0f}"),
        _text(cell.median("cpu_cores"), "{:.2f}"),
        f"{max(cell.other_cores):.2f}" if cell.other_cores else "–",
        _text(None if memory is None else memory / 2**20, "{:,.0f} MiB"),
        format_seconds(max((run.drain_seconds for run in cell.runs), default=0.0)),
        f"{len(cell.runs)}" + (f" ({invalid} not valid)" if invalid else ""),
    ]


@dataclass(frozen=True)
class ModelFigures:
    """The figures of one model in one precision.

    Attributes:
        references: reference rates: "of" ("open" or "own"), "beam_size", "what", "rate".
        agreements: "beam_size", "num_texts" and "num_different" translations of CTranslate2.
        sweeps: tried settings of CTranslate2 by load: "rounds", "chosen", "candidates_from".
    """

    cells: Sequence[Cell]
    references: Sequence[Mapping[str, Any]]
    agreements: Sequence[Mapping[str, Any]]
    sweeps: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class SuiteFigures:
    """The figures of a report; `dataclasses.asdict` gives plain JSON values.

    Attributes:
        benchmark: "quick", "full", "engine" and so on.
        machine: description of the machine; empty before the first run has ended.
        problems: failed measurements, with reasons.
        models: the figures by model and precision.
        engine: the engine's ratios; only of the engine benchmark.
    """

    name: str
    benchmark: str
    machine: Mapping[str, Any]
    problems: Sequence[str]
    models: Mapping[str, ModelFigures]
    engine: Sequence[engine_table.Row]

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> SuiteFigures:
        """The figures that `dataclasses.asdict` gave."""
        models = {
            name: ModelFigures(
                **{**model, "cells": [Cell.from_dict(cell) for cell in model["cells"]]}
            )
            for name, model in fields["models"].items()
        }
        engine = [engine_table.Row(**row) for row in fields["engine"]]
        return cls(**{**fields, "models": models, "engine": engine})


def collect(directory: Path) -> SuiteFigures:
    """The figures of a run's folder, from its raw runs.

    Raises:
        ResultsError: a run's files are damaged.
    """
    file = directory / SUITE_FILE
    facts = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    benchmark = facts.get("suite", "")
    runs = read_runs(directory)
    return SuiteFigures(
        name=directory.name,
        benchmark=benchmark,
        machine=_machine(directory),
        problems=facts.get("problems", []),
        models={
            model: _model(directory, model.replace(" ", "-"), cells_of(found))
            for model, found in runs.items()
        },
        engine=engine_table.rows(directory, runs) if benchmark == engine_table.SUITE else [],
    )


def _model(directory: Path, name: str, cells: Sequence[Cell]) -> ModelFigures:
    runs = directory / "runs" / name
    references = [
        {
            "of": "own" if file.name.startswith("own") else "open",
            "beam_size": _beam_size(file),
            **{key: value for key, value in _read(file).items() if key in ("what", "rate")},
        }
        for file in sorted(runs.glob("*reference*.json"))
    ]
    agreements = [
        {
            "beam_size": _beam_size(file),
            "num_texts": (found := agreement.read(file)).num_texts,
            "num_different": len(found.different),
        }
        for file in sorted(runs.glob("agreement*.json"))
    ]
    sweeps = sorted((directory / "sweep" / name).glob("*/sweep.json"))
    return ModelFigures(
        cells, references, agreements, {file.parent.name: _read(file) for file in sweeps}
    )


def _beam_size(file: Path) -> int:
    return int(file.stem.partition("-beam")[2] or 1)


def _read(file: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return facts


def _machine(directory: Path) -> dict[str, Any]:
    abouts = [_read(file)["about"] for file in run_files(directory)]
    if not abouts:
        return {}
    first = min(abouts, key=lambda about: str(about["started_at"]))
    names = ("processor", "cpus", "operating_system", "python", "started_at", "load_average")
    return {
        **{name: first[name] for name in names},
        "onnxruntime": sorted({about["onnxruntime"] for about in abouts if "onnxruntime" in about}),
        "ctranslate2": sorted({about["ctranslate2"] for about in abouts if "ctranslate2" in about}),
        # More than one, where a benchmark was interrupted and went on with other code.
        "revisions": sorted({about.get("revision", "not recorded") for about in abouts}),
    }


def files(summary: Mapping[str, Any]) -> dict[str, str]:
    """The files of the report, by name."""
    return {"report.md": render(SuiteFigures.from_dict(summary))}


def render(figures: SuiteFigures) -> str:
    """The report as Markdown."""
    parts = [f"# Benchmark {figures.name}", "", _machine_line(figures.machine), ""]
    if figures.benchmark == engine_table.SUITE:
        parts += ["## Against CTranslate2", "", *engine_table.render(figures.engine), ""]
    parts += _doubts(figures)
    for model, found in figures.models.items():
        parts += [f"## {model}", "", *_notes(found), "", *_table(found.cells), ""]
        parts += ["### Where we lose", "", *losses.render(found.cells), ""]
        if criteria := overload.criteria(found.cells):
            parts += ["### Overload", "", *(f"- {one}" for one in criteria), ""]
        parts += ["### Settings", ""]
        parts += [f"- {cell.load}, {cell.system}: {_settings(found, cell)}" for cell in found.cells]
        parts.append("")
    return "\n".join([*parts, _EXPLANATION, ""])


_EXPLANATION = (
    "Figures are medians over the runs (of two, their mean); percentiles are of the requests of "
    "all runs together. Latency counts from the scheduled arrival. – stands where there are too "
    "few samples for a percentile. Runs are not valid where the load generator could not keep its "
    "schedule. The server and the generator share the machine. Queue: mean time that a sentence "
    "waited. Rows a step: of CTranslate2, sequences a batch. Padding: positions that the encoder "
    "computed for nothing, by the tokens that it read; CTranslate2 does not report it. Wasted: "
    "tokens written for calls that ended without an answer. Others: cores that neither the server "
    "nor the generator kept busy, the most in a run. Drained in: the time from the end of the load "
    "to its last answer, the longest of the runs. `summary.json` has every setting of CTranslate2 "
    "that was tried, its score, and the sweeps that candidates were taken from."
)


def update_readme(readme: Path, figures: SuiteFigures) -> None:
    """Put the tables between the two marks in a README.

    Raises:
        ValueError: the marks are not there.
    """
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(README_BEGIN)
    _, end, after = rest.partition(README_END)
    if not begin or not end:
        raise ValueError(f"{readme} has no {README_BEGIN} and {README_END}")
    models = {name: model.cells for name, model in figures.models.items()}
    if figures.benchmark == engine_table.SUITE:
        tables = [*engine_table.render(figures.engine), ""]
    else:
        tables = [*_summary_table(models), "", *losses.summary(models), ""]
    body = "\n".join(["", _machine_line(figures.machine), "", *tables])
    readme.write_text(f"{before}{begin}\n{body}{end}{after}", encoding="utf-8")


def _table(cells: Sequence[Cell]) -> list[str]:
    lines = [_HEADER, ["---"] * len(_HEADER), *(row(cell) for cell in cells)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _summary_table(models: Mapping[str, Sequence[Cell]]) -> list[str]:
    """Dragoman beside CTranslate2 at the main loads."""
    header = ["model", "load", "tokens/s: ours", "CTranslate2", "p50: ours", "CTranslate2"]
    header += ["p90: ours", "CTranslate2", "failed: ours", "CTranslate2"]
    lines = [header, ["---"] * len(header)]
    for model, cells in models.items():
        for pair in losses.pairs(cells):
            load = pair[0].load
            if load.partition("-beam")[0] in _SUMMARY_LOADS:
                columns = [
                    [_text(cell.median("tokens_per_second"), "{:,.0f}") for cell in pair],
                    [_seconds(cell.latency.at(50)) for cell in pair],
                    [_seconds(cell.latency.at(90)) for cell in pair],
                    [str(cell.num_failed) for cell in pair],
                ]
                lines.append([model, load, *(text for column in columns for text in column)])
    return ["| " + " | ".join(line) + " |" for line in lines]


def _doubts(figures: SuiteFigures) -> list[str]:
    """Measurements that are missing, invalid or disturbed."""
    lines = [f"- not measured: {problem}" for problem in figures.problems]
    cells = [cell for model in figures.models.values() for cell in model.cells]
    for name, model in figures.models.items():
        for cell in model.cells:
            what = f"{name}, {cell.load}, {cell.system}"
            broken = {run.broken_off for run in cell.runs if run.broken_off}
            lines += [f"- {what}: a run was broken off: {why}" for why in sorted(broken)]
            invalid = [problem for run in cell.runs for problem in run.problems[:1]]
            if invalid:
                count = f"{len(invalid)} of {len(cell.runs)} runs"
                lines.append(f"- {what}: {count} not valid, such as: {invalid[0]}")
            disturbed = [cores for cores in cell.other_cores if cores > _QUIET_CORES]
            if disturbed:
                lines.append(
                    f"- {what}: {len(disturbed)} of {len(cell.runs)} runs beside something else "
                    f"that kept up to {max(disturbed):.2f} cores busy"
                )
        repeatable = [cell for cell in model.cells if cell.system in (OWN, PEER)]
        once = {cell.load for cell in repeatable if len(cell.runs) == 1}
        repeated = {cell.load for cell in repeatable} - once
        if once and any(len(cell.runs) > 1 for cell in cells):
            lines.append(f"- {name}: {len(once)} loads measured once, {len(repeated)} repeatedly")
    return ["## What is missing or disturbed", "", *lines, ""] if lines else []


def _notes(model: ModelFigures) -> list[str]:
    lines = []
    for one in model.references:
        search = f" with beam {one['beam_size']}" if one["beam_size"] > 1 else ""
        lines.append(
            f"- {one['of']}-…pct{search} are shares of {one['what']}: {one['rate']:.2f} requests/s."
        )
    for one in model.agreements:
        search = f", with beam {one['beam_size']}" if one["beam_size"] > 1 else ""
        lines.append(
            f"- {one['num_different']} of {one['num_texts']} translations by CTranslate2 differ "
            f"from ours{search}."
        )
    return lines


def _settings(model: ModelFigures, cell: Cell) -> str:
    """A system's settings, and the origin of CTranslate2's where not all were tried."""
    settings = ", ".join(f"{name} {value}" for name, value in cell.settings.items()) or "defaults"
    sweep = model.sweeps.get(cell.load, {}) if cell.system == PEER else {}
    if "candidates_from" not in sweep:
        return settings
    sweeps = " and ".join(sweep["candidates_from"])
    tried = sum(len(runs) for runs in sweep["rounds"])
    return (
        f"{settings} (the best of {tried} from {sweeps})"
        if tried
        else f"{settings} (as at {sweeps})"
    )


def _machine_line(machine: Mapping[str, Any]) -> str:
    if not machine:
        return "No run has ended yet."
    versions = [f"Python {machine['python']}"]
    for name, key in (("ONNX Runtime", "onnxruntime"), ("CTranslate2", "ctranslate2")):
        if machine[key]:
            versions.append(f"{name} {', '.join(machine[key])}")
    versions.append(f"revision {', '.join(machine['revisions'])}")
    return (
        f"{machine['processor']}, {machine['cpus']} CPUs, {machine['operating_system']}, "
        f"{', '.join(versions)}; begun {machine['started_at']} at a load average of "
        f"{machine['load_average']:.2f}."
    )


def _text(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _seconds(value: float | None) -> str:
    return "–" if value is None else format_seconds(value)

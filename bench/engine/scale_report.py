"""The report of `bench.engine.scale`: what was measured, and what larger machines would do."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bench.engine.scale_simulation import SERVER
from bench.recompute import REPORT_FILE

SUITE = "scale"
_ENOUGH = 0.95  # of the highest rate

_Line = Mapping[str, Any]


def files(summary: _Line) -> dict[str, str]:
    """The report of a summary."""
    lines = [
        "# Model processes and cores",
        "",
        *_head(summary),
        "",
        "## Measured here",
        "",
        *_measured(summary),
        "",
        "The load generator ran on the same cores. Ratios are to one process in the same round.",
        "",
        "## Memory",
        "",
        *_memory(summary["memory"]),
        "",
        "## Costs",
        "",
        *_costs(summary["costs"]),
        "",
        "## Simulated: this machine",
        "",
        *_simulated_here(summary),
        "",
        "## Simulated: more cores",
        "",
        "256 users with calls of one sentence, and the load generator on another machine. A "
        "process of two threads has an encoding thread beside its lanes; other processes encode "
        "between steps. Memory bandwidth and caches that cores share are not simulated.",
    ]
    for factor, found in _grouped(summary["simulated"], "factor"):
        larger = f"A model with {factor:g} times as long graphs" if factor != 1 else "This model"
        lines += ["", f"### {larger}", "", *_predictions(found)]
    return {REPORT_FILE: "\n".join([*lines, ""])}


def _head(summary: _Line) -> list[str]:
    machine = summary["machine"]
    return [
        f"`make bench-scale`: {machine['processor']}, {summary['cores']} cores, onnxruntime "
        f"{machine.get('onnxruntime')}, Python {machine['python']}, {machine['started_at'][:10]}, "
        f"revision {machine.get('revision', 'not recorded')}, load average at the begin "
        f"{machine['load_average']:.1f}. Model {summary['bundle']}, {summary['rounds']} rounds of "
        f"{summary['seconds']:g} s of each load.",
    ]


def _measured(summary: _Line) -> list[str]:
    lines = [
        "| users | processes | sentences/s | p50 ms | p99 ms | CPU ms of the server | of the "
        "model | ratio of sentences/s | ratio of CPU |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for users, loads in _grouped(summary["measured"], "users"):
        by_processes = dict(_grouped(loads, "processes"))
        for processes, rounds in by_processes.items():
            latencies = [_milliseconds(rounds, name) for name in ("p50", "p99")]
            costs = [f"{_median(rounds, name):.1f}" for name in ("server", "model")]
            ratios = [
                _ratios(rounds, by_processes[1], figure)
                for figure in (lambda one: one["rate"], lambda one: one["server"] + one["model"])
            ]
            shown = [f"{_median(rounds, 'rate'):.0f}", *latencies, *costs]
            lines.append(_row(users, processes, *shown, *ratios))
    return lines


def _ratios(
    rounds: Sequence[_Line], base: Sequence[_Line], figure: Callable[[_Line], float]
) -> str:
    """The median ratio of the rounds, and the range."""
    pairs = zip(rounds, base, strict=True)
    found = sorted(figure(one) / figure(other) for one, other in pairs)
    return f"{statistics.median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})"


def _memory(found: Sequence[_Line]) -> list[str]:
    lines = [
        "PSS of the model's processes after the loads: each shared page is divided by its users.",
        "",
        "| processes | MiB | of these, packed weights | packed weights that are mapped, in all |",
        "| ---: | ---: | ---: | ---: |",
    ]
    for one in found:
        figures = (one["total"], one["shared_weights"], one["mapped_weights"])
        lines.append(_row(one["processes"], *(f"{value:.0f}" for value in figures)))
    return [*lines, "", "One process packs its weights into memory of its own."]


def _costs(costs: _Line) -> list[str]:
    def shown(table: Mapping[str, float]) -> str:
        return ", ".join(f"{1e3 * seconds:.2f} ms of {count}" for count, seconds in table.items())

    return [
        f"- a step, by rows: {shown(costs['step'])}",
        f"- an encode, by sources: {shown(costs['encode'])}",
        f"- part of a step that two threads share: {costs['parallel']:.2f}",
        f"- a sentence in the model's process, besides graphs: {1e3 * costs['python']:.2f} ms",
        f"- a call in the server's process: {1e3 * costs['server']:.2f} ms, so that it answers at "
        f"most {1 / costs['server']:.0f} a second; in the load generator "
        f"{1e3 * costs['client']:.2f} ms",
        f"- steps of a sentence: {statistics.mean(costs['steps']):.1f} on average",
    ]


def _simulated_here(summary: _Line) -> list[str]:
    lines = [
        "| users | processes | measured | simulated |",
        "| ---: | ---: | ---: | ---: |",
    ]
    for one in summary["simulated_here"]:
        rounds = [
            load
            for load in summary["measured"]
            if (load["users"], load["processes"]) == (one["users"], one["processes"])
        ]
        rate = _median(rounds, "rate")
        lines.append(_row(one["users"], one["processes"], f"{rate:.0f}", f"{one['rate']:.0f}"))
    return lines


def _predictions(found: Sequence[_Line]) -> list[str]:
    lines = [
        "| cores | processes | sentences/s | p99 ms | server process busy | cores busy | first "
        "bottleneck |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for cores, predictions in _grouped(found, "cores"):
        most = max(one["rate"] for one in predictions)
        fewest = next(one for one in predictions if one["rate"] >= _ENOUGH * most)
        for one in predictions:
            name = one["bottleneck"]
            if one is fewest:
                name = f"**{name}**"
            busy = [f"{100 * one['busy'][part]:.0f} %" for part in (SERVER, "cores")]
            figures = f"{one['rate']:.0f}", f"{1e3 * one['p99']:.0f}"
            lines.append(_row(cores, one["processes"], *figures, *busy, name))
    return [*lines, "", "Bold: the fewest processes within 5 % of the highest rate."]


def _row(*values: object) -> str:
    return f"| {' | '.join(map(str, values))} |"


def _median(lines: Iterable[_Line], name: str) -> float:
    return statistics.median(float(line[name]) for line in lines)


def _milliseconds(lines: Sequence[_Line], name: str) -> str:
    """The median of a latency; "" if a round had too few answers for it."""
    if any(line[name] is None for line in lines):
        return ""
    return f"{1e3 * _median(lines, name):.0f}"


def _grouped(lines: Iterable[_Line], name: str) -> list[tuple[Any, list[_Line]]]:
    ordered = sorted(lines, key=lambda line: float(line[name]))
    return [(key, list(group)) for key, group in itertools.groupby(ordered, lambda one: one[name])]

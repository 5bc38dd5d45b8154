"""Measures what an encoder costs at growing lengths, for each kind of attention.

    python -m bench.studies.lengths.run --output bench/reports/lengths

Encodes one random source with a random network, in ONNX Runtime (the served graph, fp32) and in
PyTorch (the masked reference), each case in a process of its own. Writes `report.md` with the
exponents that fit, `summary.json`, and a plot of each figure. Time is CPU time, so that other work
on the machine disturbs it little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bench.machine import machine
from bench.processes import in_own_process
from bench.recompute import store
from bench.studies.lengths.measure import ENGINES, KINDS, LengthCase, LengthCost, measure
from bench.studies.lengths.report import to_dict

_LENGTHS = "512,1024,2048,4096,8192,16384"
_MOST_OF_FREE = 0.7


def main(
    output: Annotated[Path, typer.Option(help="Folder of the report.")],
    lengths: Annotated[str, typer.Option(help="Tokens, separated by commas.")] = _LENGTHS,
    kinds: Annotated[str, typer.Option(help="Kinds of attention.")] = ",".join(KINDS),
    engines: Annotated[str, typer.Option(help="Engines.")] = ",".join(ENGINES),
    preset: Annotated[str, typer.Option(help="Sizes of the network.")] = "small",
    window: Annotated[int, typer.Option(min=1, help="attention_window.")] = 128,
    rank: Annotated[int, typer.Option(min=1, help="attention_rank.")] = 128,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the engine.")] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Measured encodes of a case.")] = 3,
    max_seconds: Annotated[
        float, typer.Option(help="Most seconds of an encode; longer ones are left out.")
    ] = 60,
) -> None:
    """Measure, and write the report."""
    sizes = sorted(int(length) for length in lengths.split(","))
    costs: list[LengthCost] = []
    for engine in _known("--engines", engines, ENGINES):
        for kind in _known("--kinds", kinds, KINDS):
            first = LengthCase(engine, kind, sizes[0], preset, window, rank, threads, repeats)
            for cost in growing(first, sizes, max_seconds):
                case, memory = cost.case, cost.peak_bytes / 2**20
                typer.echo(
                    f"{case.engine} {case.kind} {case.length:,}: "
                    f"{1000 * cost.seconds:,.1f} ms, {memory:,.0f} MiB"
                )
                costs.append(cost)
    about = {
        "Network": f"preset {preset}, random weights, window {window}, rank {rank}",
        **machine(threads),
        "Figures": f"CPU time, the median of {repeats} encodes; memory beyond the loaded network "
        "at its peak",
    }
    store(output, to_dict(costs, about))
    typer.echo(f"{output / 'report.md'}")


def growing(first: LengthCase, lengths: Sequence[int], max_seconds: float) -> Iterator[LengthCost]:
    """The costs of `first` at each length, until the next would cost too much.

    The cost is expected to grow with the square of the length at most.
    """
    cost: LengthCost | None = None
    for length in lengths:
        if cost is not None:
            factor = (length / cost.case.length) ** 2
            too_long = cost.seconds * factor > max_seconds
            if too_long or cost.peak_bytes * factor > _MOST_OF_FREE * _available_bytes():
                return
        cost = in_own_process(measure, replace(first, length=length))
        yield cost


def _known(option: str, given: str, choices: Sequence[str]) -> list[str]:
    names = given.split(",")
    for name in names:
        if name not in choices:
            raise typer.BadParameter(
                f"{name!r} is not one of {', '.join(choices)}", param_hint=option
            )
    return names


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo has no MemAvailable")


if __name__ == "__main__":
    typer.run(main)

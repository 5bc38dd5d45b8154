"""What a layer costs by length and by width, and how far a signal travels in it: three kinds.

    python -m bench.layers.run --output bench/reports/layers

Table 1 of "Attention Is All You Need" by measurement: one layer of self-attention, a GRU and a
convolution of width 3 (`layers.py`), in PyTorch on a CPU. Each case runs in a process of its own.
Writes `report.md` with the exponents that fit, `summary.json`, and plots. Time is CPU time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench import curves
from bench.curves import Points
from bench.lengths.run import machine
from bench.processes import PeakMemory, in_own_process

KINDS = ("self-attention", "recurrent", "convolutional")
_LENGTHS, _WIDTHS = "128,256,512,1024,2048,4096,8192", "64,128,256,512,1024"
_PATH_LENGTHS = (8, 16, 32, 64)


@dataclass(frozen=True)
class LayerCase:
    """One layer: its kind, the positions n and the width d of its input."""

    kind: str
    length: int
    d_model: int
    threads: int = 1
    repeats: int = 5


@dataclass(frozen=True)
class LayerCost:
    """What a case took: CPU seconds of the best of its passes, and memory beyond the weights."""

    case: LayerCase
    seconds: float
    peak_bytes: int


def measure(case: LayerCase) -> LayerCost:
    """Pass a random input through the layer, in this process."""
    import torch

    from bench.layers.layers import make_layer

    torch.set_num_threads(case.threads)
    layer = make_layer(case.kind, case.d_model)
    states = torch.randn(case.length, case.d_model)
    seconds = []
    with torch.inference_mode(), PeakMemory() as memory:
        for _ in range(1 + case.repeats):
            started = time.process_time()
            layer.forward(states)
            seconds.append(time.process_time() - started)
    return LayerCost(case, min(seconds[1:]), memory.peak_bytes)


def main(
    output: Annotated[Path, typer.Option(help="Folder of the report.")],
    lengths: Annotated[str, typer.Option(help="n, separated by commas.")] = _LENGTHS,
    widths: Annotated[str, typer.Option(help="d, separated by commas.")] = _WIDTHS,
    length: Annotated[int, typer.Option(min=1, help="n while d grows.")] = 512,
    width: Annotated[int, typer.Option(min=64, help="d while n grows.")] = 256,
    threads: Annotated[int, typer.Option(min=1, help="Of PyTorch.")] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Measured passes of a case.")] = 5,
) -> None:
    """Measure, and write the report."""
    by_length = [(int(n), width) for n in lengths.split(",")]
    by_width = [(length, int(d)) for d in widths.split(",")]
    costs: dict[str, list[LayerCost]] = {}
    for growing, sizes in (("n", by_length), ("d", by_width)):
        costs[growing] = []
        for kind in KINDS:
            for n, d in sizes:
                cost = in_own_process(measure, LayerCase(kind, n, d, threads, repeats))
                typer.echo(f"{kind} n={n:,} d={d:,}: {1000 * cost.seconds:,.2f} ms")
                costs[growing].append(cost)
    about = {
        "Layers": "self-attention with heads of 64, a GRU, a convolution of width 3, with random "
        "weights; one input at a time. Attention is fused: it does not keep its n x n weights",
        "Figures": f"CPU time of the fastest of {repeats} passes; memory beyond weights and input "
        f"at its peak; n grows at d = {width}, d at n = {length}",
        **machine(threads),
    }
    write_report(costs, about, signals(), output)
    typer.echo(f"{output / 'report.md'}")


@dataclass(frozen=True)
class Signal:
    """How far a signal travels: the inputs that position n / 2 sees, and path lengths by n."""

    seen: int
    paths: Mapping[int, int]


def signals(lengths: Sequence[int] = _PATH_LENGTHS) -> dict[str, Signal]:
    """Of each kind, found by gradients."""
    from bench.layers.layers import inputs_seen, path_length

    longest = lengths[-1]
    return {
        kind: Signal(
            len(inputs_seen(kind, longest, longest // 2)),
            {n: path_length(kind, n) for n in lengths},
        )
        for kind in KINDS
    }


FIGURES: Mapping[str, tuple[str, Callable[[LayerCost], float]]] = {
    "time": ("milliseconds", lambda cost: 1000 * cost.seconds),
    "memory": ("MiB", lambda cost: max(1.0, cost.peak_bytes / 2**20)),
}


def write_report(
    costs: Mapping[str, Sequence[LayerCost]],
    about: Mapping[str, str],
    found: Mapping[str, Signal],
    output: Path,
) -> None:
    """Write the report, its data and its plots into the folder.

    Args:
        costs: by what grows, "n" or "d".
        about: lines for its head.
        found: of each kind.
        output: the folder.
    """
    output.mkdir(parents=True, exist_ok=True)
    lines = ["# Self-attention, recurrent and convolutional layers", ""]
    lines += [f"- {name}: {text}" for name, text in about.items()]
    lines.append("- Exponent: the slope of the logarithms over the larger half of the sizes.")
    for growing, of in costs.items():
        for figure, (unit, value) in FIGURES.items():
            series = _series(of, growing, value)
            sizes = [x for x, _ in next(iter(series.values()))]
            fit_from = sizes[len(sizes) // 2]
            lines += ["", f"## {figure} against {growing}, in {unit}", ""]
            lines += curves.cost_table(series, growing, fit_from)
            name = f"{figure}-{growing}.svg"
            lines += ["", f"![{figure} against {growing}]({name})"]
            notes = {k: f"{curves.exponent(p, fit_from):.2f}" for k, p in series.items()}
            picture = curves.plot(
                series, f"One layer: {figure} against {growing}", (growing, unit), notes=notes
            )
            (output / name).write_text(picture, encoding="utf-8")
    lines += ["", *path_table(found)]
    (output / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    summary = {
        "about": about,
        "costs": {name: [asdict(cost) for cost in of] for name, of in costs.items()},
        "signals": {kind: asdict(signal) for kind, signal in found.items()},
    }
    (output / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


def path_table(found: Mapping[str, Signal]) -> list[str]:
    """Markdown: path lengths, and what one layer sees."""
    lengths = list(next(iter(found.values())).paths)
    head = [f"n = {n}" for n in lengths]
    lines = [
        "## Path length",
        "",
        "Operations, each of which needs the one before, until the last of n positions depends on "
        "the input of the first; and the inputs on which the output at position n / 2 depends "
        f"after one layer, of n = {lengths[-1]}. Both are found by gradients.",
        "",
        "| layer | " + " | ".join(head) + " | inputs seen |",
        "| --- |" + " ---: |" * (len(lengths) + 1),
    ]
    for kind, signal in found.items():
        cells = [str(n) for n in (*signal.paths.values(), signal.seen)]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return lines


def _series(
    costs: Sequence[LayerCost], growing: str, value: Callable[[LayerCost], float]
) -> dict[str, Points]:
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for cost in costs:
        size = cost.case.length if growing == "n" else cost.case.d_model
        found[cost.case.kind].append((size, value(cost)))
    return {kind: sorted(points) for kind, points in found.items() if points}


if __name__ == "__main__":
    typer.run(main)

"""Compares three kinds of layers: cost by length and width, and the reach of a signal.

    python -m bench.studies.layers.run --output bench/reports/layers

Table 1 of "Attention Is All You Need" by measurement: one layer of self-attention, a GRU and a
convolution of width 3 (`layers.py`), in PyTorch on a CPU. Each case runs in a process of its own.
Writes `report.md` with the exponents that fit, `summary.json`, and plots. Time is CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bench.machine import machine
from bench.processes import PeakMemory, in_own_process
from bench.recompute import store
from bench.studies.layers.report import KINDS, LayerCase, LayerCost, Signal, to_dict

_LENGTHS, _WIDTHS = "128,256,512,1024,2048,4096,8192", "64,128,256,512,1024"
_PATH_LENGTHS = (8, 16, 32, 64)


def measure(case: LayerCase) -> LayerCost:
    """Pass a random input through the layer, in this process."""
    import torch

    from bench.studies.layers.layers import make_layer

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
    threads: Annotated[int, typer.Option(min=1, help="Threads of PyTorch.")] = 1,
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
    store(output, to_dict(costs, about, signals()))
    typer.echo(f"{output / 'report.md'}")


def signals(lengths: Sequence[int] = _PATH_LENGTHS) -> dict[str, Signal]:
    """The reach of signals in each kind of layer, found by gradients."""
    from bench.studies.layers.layers import inputs_seen, path_length

    longest = lengths[-1]
    return {
        kind: Signal(
            len(inputs_seen(kind, longest, longest // 2)),
            {n: path_length(kind, n) for n in lengths},
        )
        for kind in KINDS
    }


if __name__ == "__main__":
    typer.run(main)

"""Compares what calls cost a server of this tree and one of another.

    git clone . /tmp/before && git -C /tmp/before checkout REVISION
    python -m bench.versions /tmp/before [--clients N] [--in-process] [--bundle DIR]
    python -m bench.versions [--clients N]

Without another tree, calls that leave things and letter case to the model are compared with usual
ones to the same server: what it costs to look at plain texts.

Both servers run side by side, with the same bundle and one thread of computation, and get the same
calls in turn: a block to one, a block to the other, the order swapped in each pair. What is
compared is the CPU time of the server's processes over a block, which other load on the machine
affects less, and the time on the clock. The ratios are of pairs of blocks; the interval of their
median is a bootstrap's. Both servers are started several times, since a process keeps for its life
what its memory's layout costs or saves it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from bench.processes import descendants
from dragoman import Client, VerbatimKinds
from dragoman.arguments import TranslateArguments

_ROOT = Path(__file__).parents[1]
_NUM_RESAMPLES = 2000
_LANGUAGES: TranslateArguments = {"source": "en", "target": "de"}


class Cost(NamedTuple):
    """Cost of a block of calls: CPU seconds of the server, and seconds."""

    cpu_seconds: float
    seconds: float


@dataclass(frozen=True)
class Version:
    """A running server.

    Attributes:
        client: connection to the server.
        pid: id of the server's process.
        clients: one thread for each client that calls.
        arguments: options of each call.
    """

    client: Client
    pid: int
    clients: ThreadPoolExecutor
    arguments: TranslateArguments = field(default_factory=_LANGUAGES.copy)

    def cpu_seconds(self) -> float:
        """CPU time of its threads so far, to the nanosecond; one that has ended does not count.

        The models' processes count too.
        """
        folders = [Path(f"/proc/{pid}/task") for pid in (self.pid, *descendants(self.pid))]
        threads = [file for folder in folders for file in folder.glob("*/schedstat")]
        return sum(int(file.read_text("ascii").split()[0]) for file in threads) / 1e9

    def block(self, texts: Sequence[str], num_calls: int) -> Cost:
        """Make calls, and return their cost."""
        before, started = self.cpu_seconds(), time.perf_counter()
        calls = [
            self.clients.submit(
                self.client.translate,
                [texts[index % len(texts)]],
                **self.arguments,
            )
            for index in range(num_calls)
        ]
        for call in calls:
            call.result()
        return Cost(self.cpu_seconds() - before, time.perf_counter() - started)


@contextlib.contextmanager
def version(tree: Path, bundle: Path, clients: int, in_process: bool) -> Iterator[Version]:
    """A server of the code in a directory."""
    settings = ["--model", bundle, "--port", "0", "--metrics-port", "0", "--threads", "1"]
    settings += ["--in-process"] if in_process else []
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "serve", *map(str, settings)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": f"{tree}:{tree / 'proto'}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        entry: dict[str, str] = {}
        for line in process.stderr:
            entry = json.loads(line)
            if entry["message"] == "serving":
                break
        if entry.get("message") != "serving":
            raise RuntimeError(f"{tree}: no server: {entry.get('message')}")
        # A pipe that nobody reads fills, and the server then drops its log's lines.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        with Client(entry["address"], timeout=60) as client, ThreadPoolExecutor(clients) as pool:
            yield Version(client, process.pid, pool)
    finally:
        process.terminate()
        process.wait()


def interval(ratios: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of the median of ratios."""
    chance = random.Random(seed)
    medians = sorted(
        statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(_NUM_RESAMPLES)
    )
    return medians[round(0.025 * _NUM_RESAMPLES)], medians[round(0.975 * _NUM_RESAMPLES) - 1]


def _paired(
    servers: Sequence[Version], texts: Sequence[str], pairs: int, calls: int
) -> Iterator[tuple[Cost, Cost]]:
    """Costs of blocks of calls, of the older server and of the newer."""
    old, new = servers
    for each in servers:
        each.block(texts, 10 * calls)
    for pair in range(pairs):
        if pair % 2:
            second = new.block(texts, calls)
            yield old.block(texts, calls), second
        else:
            first = old.block(texts, calls)
            yield first, new.block(texts, calls)


def _measured(
    servers: Sequence[Version], texts: Sequence[str], pairs: int, calls: int
) -> list[tuple[Cost, Cost]]:
    """The costs of a start, whose ratio is printed."""
    costs = list(_paired(servers, texts, pairs, calls))
    ratios = [new.cpu_seconds / old.cpu_seconds for old, new in costs]
    typer.echo(f"now/before: {statistics.median(ratios):.4f}")
    return costs


def _bare() -> TranslateArguments:
    """Arguments that leave everything in a text to the model."""
    kinds = {kind.name: False for kind in fields(VerbatimKinds)}
    return {**_LANGUAGES, "verbatim": VerbatimKinds(**kinds), "adapt_letter_case": False}


def main(
    before: Annotated[
        Path | None, typer.Argument(help="A clone of the project at another revision.")
    ] = None,
    bundle: Annotated[Path, typer.Option()] = _ROOT / "model/pretrained/en-de",
    source: Annotated[Path, typer.Option(help="Texts, one a line.")] = _ROOT / "docker/load.en.txt",
    starts: Annotated[int, typer.Option(help="Of both servers.", min=1)] = 8,
    pairs: Annotated[int, typer.Option(help="Of blocks, in each start.", min=3)] = 60,
    calls: Annotated[int, typer.Option(help="In a block.", min=1)] = 30,
    clients: Annotated[int, typer.Option(help="That call at the same time.", min=1)] = 1,
    in_process: Annotated[bool, typer.Option(help="The model in the server's process.")] = False,
) -> None:
    """Compare what calls cost in this tree and in another."""
    texts = [line for line in source.read_text("utf-8").splitlines() if line.strip()]
    costs: list[tuple[Cost, Cost]] = []
    for start in range(starts):
        if before is None:
            with version(_ROOT, bundle, clients, in_process) as server:
                servers = [replace(server, arguments=_bare()), server]
                costs += _measured(servers, texts, pairs, calls)
            continue
        trees = [before.resolve(), _ROOT][:: 1 if start % 2 else -1]
        with (
            version(trees[0], bundle, clients, in_process) as first,
            version(trees[1], bundle, clients, in_process) as second,
        ):
            servers = [first, second][:: 1 if start % 2 else -1]  # the older one first
            costs += _measured(servers, texts, pairs, calls)
    for what, index in (("CPU time", 0), ("time", 1)):
        old, new = (
            1000 * statistics.median(cost[side][index] for cost in costs) / calls for side in (0, 1)
        )
        ratios = [pair[1][index] / pair[0][index] for pair in costs]
        low, high = interval(ratios)
        typer.echo(
            f"{what} of a call: before {old:.3f} ms, now {new:.3f} ms; now/before: median "
            f"{statistics.median(ratios):.4f} (95 % interval {low:.4f} to {high:.4f})"
        )


if __name__ == "__main__":
    typer.run(main)

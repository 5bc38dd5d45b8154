"""The fuzzer: `python -m tests.robustness.fuzz.run`, or `make fuzz`.

Parsers run in monitored processes of their own, while a server on loopback gets calls, requests and
frames. A canary translates at the same time; at the end, the server must be in its original state.

Exit status: 0 if nothing was found, 1 if something was, 130 after Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from bench.benchmark import console
from bench.load.results import about_machine
from bench.recompute import store
from bench.server_process import end_in_order_on_sigterm
from tests.robustness.fuzz import report
from tests.robustness.fuzz.isolated import InputLimits, Shard, run_one, run_shards, shards_of
from tests.robustness.fuzz.served import (
    check_afterwards,
    count_errors_logged,
    run_inputs,
)
from tests.robustness.fuzz.server import Footprint, fuzzed_server
from tests.robustness.fuzz.target import Tally, random_of, shown
from tests.robustness.fuzz.targets import PARSERS, SERVED

_SERVER = "server"
# Inputs of another seed before the footprint is measured: least number, and fraction of the inputs.
_LEAST_WARM, _WARM_SHARE = 100, 10
_PORTION = 2_000  # inputs of a served target, between two lines on the terminal


def counts_of(num_inputs: int, names: Sequence[str]) -> dict[str, int]:
    """The number of inputs of each target: a share for those of a server, the rest for parsers."""
    served = {name: SERVED[name].share for name in names if name in SERVED}  # type: ignore[attr-defined]
    parsers = {name: PARSERS[name].share for name in names if name in PARSERS}  # type: ignore[attr-defined]
    if not parsers:  # nothing else takes the rest
        served = {name: share / sum(served.values()) for name, share in served.items()}
    counts = {name: max(1, round(num_inputs * share)) for name, share in served.items()}
    rest = max(0, num_inputs - sum(counts.values()))
    for name, share in parsers.items():
        counts[name] = max(1, round(rest * share / sum(parsers.values())))
    return counts


async def fuzz(counts: Mapping[str, int], seed: int, num_processes: int) -> report.Fuzzing:
    """Run all inputs; returns their results."""
    tallies = {name: Tally() for name in counts}
    limits = InputLimits()
    factories = {
        f"{PARSERS[name].__module__}:{PARSERS[name].__qualname__}": name
        for name in counts
        if name in PARSERS
    }

    def ended(shard: Shard, tally: Tally) -> None:
        name = factories[shard.factory]
        tallies[name].add(tally)
        _tell(name, tallies[name], counts[name])

    shards = shards_of([(factory, counts[name]) for factory, name in factories.items()], seed)
    parsing = asyncio.create_task(
        asyncio.to_thread(run_shards, shards, limits, num_processes, ended)
    )
    footprints: list[Footprint] = []
    served = [name for name in SERVED if name in counts]
    if served:
        tallies[_SERVER] = Tally()
        footprints = await _attack(served, counts, seed, tallies)
    await parsing
    return report.Fuzzing(seed, counts, tallies, footprints)


async def _attack(
    served: Sequence[str], counts: Mapping[str, int], seed: int, tallies: Mapping[str, Tally]
) -> list[Footprint]:
    """Run the inputs for a server; returns its footprint before, and after each target."""
    with fuzzed_server() as server:
        await server.warm_up()
        for name in served:  # other inputs, until the model's process has met its largest batches
            numbers = range(max(_LEAST_WARM, counts[name] // _WARM_SHARE))
            await run_inputs(SERVED[name](), server, seed + 1, numbers, tallies[_SERVER])
        tallies[_SERVER].outcomes.clear()
        footprints = [await server.quiet_footprint()]
        for name in served:
            target, tally = SERVED[name](), tallies[name]
            for start in range(0, counts[name], _PORTION):
                numbers = range(start, min(start + _PORTION, counts[name]))
                await run_inputs(target, server, seed, numbers, tally)
                _tell(name, tally, counts[name])
            footprints.append(await check_afterwards(server, footprints[0], tally))
        count_errors_logged(server, tallies[_SERVER])
    return footprints


def _tell(name: str, tally: Tally, count: int) -> None:
    found = f", [red]found: {'; '.join(tally.defects)}[/red]" if tally.defects else ""
    console.print(f"{name}: {tally.num_inputs:,} of {count:,}{found}")


async def run_alone(name: str, seed: int, number: int) -> Tally:
    """Make one input again, run it, and show input and outcome."""
    tally = Tally()
    if name in PARSERS:
        parser = PARSERS[name]()
        given = parser.generate(random_of(name, seed, number))
        typer.echo(shown(given, 100_000))
        run_one(parser, given, number, tally, InputLimits())
        return tally
    target = SERVED[name]()
    typer.echo(shown(target.generate(random_of(name, seed, number)), 100_000))
    with fuzzed_server() as server:
        await server.warm_up()
        base = await server.quiet_footprint()
        await run_inputs(target, server, seed, (number,), tally)
        await check_afterwards(server, base, tally)
        count_errors_logged(server, tally)
    return tally


def main(
    inputs: Annotated[int, typer.Option(min=1, help="In all, over the targets.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Another one makes other inputs.")] = 0,
    target: Annotated[
        list[str] | None, typer.Option(help=f"Only these: {', '.join([*SERVED, *PARSERS])}.")
    ] = None,
    only: Annotated[
        int | None, typer.Option(help="The number of a single input, of one --target.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="That run parsers.")] = 1,
    output: Annotated[
        Path | None, typer.Option(help="Where to write the report; by default nowhere.")
    ] = None,
) -> None:
    """Send made-up and mutated inputs to all parsers and ports, and judge what comes back."""
    end_in_order_on_sigterm()
    names = target or [*SERVED, *PARSERS]
    if unknown := set(names) - {*SERVED, *PARSERS}:
        raise typer.BadParameter(f"no such target: {', '.join(sorted(unknown))}")
    if only is not None:
        if len(names) != 1:
            raise typer.BadParameter("--only takes one --target")
        tally = asyncio.run(run_alone(names[0], seed, only))
        typer.echo(", ".join(tally.outcomes))
        for defect in tally.defects.values():
            typer.echo(f"FOUND {defect.what}\n{defect.evidence}")
        raise typer.Exit(bool(tally.defects))
    facts, started = about_machine(), time.monotonic()
    try:
        fuzzing = asyncio.run(fuzz(counts_of(inputs, names), seed, processes))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    seconds = time.monotonic() - started
    fuzzing = dataclasses.replace(fuzzing, facts={**facts, "minutes": round(seconds / 60, 1)})
    if output is not None:
        store(output, {**fuzzing.to_dict(), "name": output.name})
    for line in report.conclusion(fuzzing):
        typer.echo(line)
    raise typer.Exit(fuzzing.num_defects > 0)


if __name__ == "__main__":
    typer.run(main)

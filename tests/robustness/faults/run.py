"""Faults under load: processes killed, files damaged, clients gone. `python -m
tests.robustness.faults.run`.

Each round starts a server of the included model and a steady load of several kinds of clients,
causes one fault, and accounts for every call: answered with exactly the same translation as without
faults, or refused with a code that says whether to retry. Afterwards, the server has to answer, and
its memory, descriptors, threads and processes may have grown only within a bound
(`gauges.MOST_MORE`). Linux only; everything stays on loopback.

Exit status: 0 if all rounds are good, 1 if not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from bench.load.results import about_machine
from bench.load.source import read_texts
from bench.recompute import store
from bench.server_process import ROOT, end_in_order_on_sigterm
from tests.robustness.envoy import envoy_program
from tests.robustness.faults.batch_scenarios import BATCH_SCENARIOS
from tests.robustness.faults.envoy_scenarios import ENVOY_SCENARIOS
from tests.robustness.faults.file_scenarios import FILE_SCENARIOS
from tests.robustness.faults.report import NAME
from tests.robustness.faults.round import RoundResult, Scenario, play, recorded
from tests.robustness.faults.scenarios import PROCESS_SCENARIOS

_ALL = (*PROCESS_SCENARIOS, *FILE_SCENARIOS, *BATCH_SCENARIOS, *ENVOY_SCENARIOS)
SCENARIOS = {each.name: each for each in _ALL}
_BUNDLE = ROOT / "model" / "pretrained" / "en-de"
_TEXTS = ROOT / "docker" / "load.en.txt"
_NUM_TEXTS = 24
_SHOWN = 10  # of different finds of a round


def main(
    rounds: Annotated[
        int | None, typer.Option(min=1, help="In all; scenarios take turns. Default: one each.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Scenarios; default: all.")] = None,
    seed: Annotated[int, typer.Option(help="Of the first round; each next has one more.")] = 0,
    bundle: Annotated[Path, typer.Option(help="The bundle that is served.")] = _BUNDLE,
    output: Annotated[Path | None, typer.Option(help="Folder of a report.")] = None,
) -> None:
    """Play the rounds, and print a line for each."""
    end_in_order_on_sigterm()
    for name in only or ():
        if name not in SCENARIOS:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(SCENARIOS)}")
    chosen = [SCENARIOS[name] for name in only or SCENARIOS]
    if envoy_program() is None:
        chosen = [each for each in chosen if each not in ENVOY_SCENARIOS]
        typer.echo("NOT RUN: scenarios with Envoy; `make check-manifests` installs it", err=True)
    rounds = rounds or len(chosen)
    results = asyncio.run(play_all(chosen, rounds, seed, bundle.resolve()))
    if output is not None:
        found = about_machine()
        summary = {
            "benchmark": NAME,
            "about": {
                "Command": f"python -m tests.robustness.faults.run --rounds {rounds}",
                "Machine": f"{found['processor'] or found['machine']}, {found['cpus']} CPUs",
                "Software": f"onnxruntime {found.get('onnxruntime')}, Python {found['python']}, "
                f"revision {found.get('revision', 'not recorded')}, {found['started_at'][:10]}",
            },
            "scenarios": {each.name: each.what for each in SCENARIOS.values()},
            "rounds": [each.to_dict() for each in results],
        }
        store(output, summary)
    if any(each.finds for each in results):
        raise typer.Exit(1)


async def play_all(
    scenarios: list[Scenario], rounds: int, seed: int, bundle: Path
) -> list[RoundResult]:
    """Play a number of rounds, and print each."""
    texts = read_texts(_TEXTS)[:_NUM_TEXTS]
    expected = await recorded(bundle, texts)
    results = []
    for number in range(rounds):
        scenario = scenarios[number % len(scenarios)]
        result = await play(scenario, seed + number, bundle, expected)
        results.append(result)
        refused = ", ".join(f"{count} {code}" for code, count in result.refused.items())
        typer.echo(
            f"{number + 1} of {rounds}: {scenario.name}: {result.right} right, "
            f"{refused or 'none'} refused, again after {result.recovery_seconds:.1f} s, "
            f"{result.more_memory / 2**20:+.0f} MiB"
        )
        for find, count in Counter(result.finds).most_common(_SHOWN):
            typer.echo(f"  FIND {find} ({count} times)")
        if result.finds:
            typer.echo(
                f"  again: python -m tests.robustness.faults.run --only {scenario.name} "
                f"--seed {result.seed} --rounds 1"
            )
    return results


if __name__ == "__main__":
    typer.run(main)

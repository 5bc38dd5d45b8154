"""CPU time of a sentence in the server and the model: `python -m bench.engine.cpu_time`.

CPU time can be compared on a busy machine, where latency and throughput cannot. Other checkouts of
this repository are measured in alternating rounds with this one.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import tempfile
import urllib.request
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client.parser import text_string_to_metric_families

from bench.benchmark import console
from bench.load.plan import LoadPlan
from bench.load.session import Session
from bench.load.source import read_texts
from bench.server_process import ROOT, Running
from bench.suite.artifacts import SHIPPED_TEXTS, Artifacts
from bench.suite.points import OWN
from bench.suite.systems import System, running

_SHIPPED_BUNDLE = ROOT / "model" / "pretrained" / "en-de"
_QUEUE_SECONDS = 60.0  # so that no call is refused


@dataclass(frozen=True)
class SentenceCost:
    """Costs of the sentences of one round.

    Attributes:
        server, model: CPU milliseconds of a sentence, in the two processes.
        sources: sources in an encode.
        rows: rows in a step.
        rate: sentences a second.
        p50, p99: percentiles of the latency in milliseconds; NaN with too few sentences.
    """

    server: float
    model: float
    sources: float
    rows: float
    rate: float
    p50: float
    p99: float


def counters(page: str) -> dict[str, float]:
    """The values on a page of metrics, by name, summed over labels."""
    values: dict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            values[sample.name] += sample.value
    return values


def cost_of(
    before: dict[str, float], after: dict[str, float], rate: float, p50: float, p99: float
) -> SentenceCost:
    """The cost, from the counters before and after a round."""
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    sentences = grown["dragoman_encoded_sentences_total"]
    return SentenceCost(
        server=1e3 * grown["process_cpu_seconds_total"] / sentences,
        model=1e3 * grown["dragoman_model_process_cpu_seconds_total"] / sentences,
        sources=sentences / grown["dragoman_encode_duration_seconds_count"],
        rows=grown["dragoman_step_rows_sum"] / grown["dragoman_step_rows_count"],
        rate=rate,
        p50=p50,
        p99=p99,
    )


def measure(server: Running, plan: LoadPlan, texts: list[str]) -> SentenceCost:
    """Put a server under a load."""
    before = _page(server)
    summary = Session(texts).run(plan).summary()
    after = _page(server)
    p50, p99 = (1e3 * (summary.latency.at(one) or math.nan) for one in (50, 99))
    return cost_of(before, after, summary.texts_per_second, p50, p99)


def _page(server: Running) -> dict[str, float]:
    with urllib.request.urlopen(server.metrics_url) as response:
        return counters(response.read().decode())


def main(
    bundle: Annotated[Path, typer.Option(help="The model.")] = _SHIPPED_BUNDLE,
    texts: Annotated[Path, typer.Option(help="Texts for it, one a line.")] = SHIPPED_TEXTS,
    against: Annotated[list[Path] | None, typer.Option(help="Other checkouts; repeatable.")] = None,
    users: Annotated[int, typer.Option(help="Users of a closed loop.")] = 64,
    rate: Annotated[float, typer.Option(help="Poisson arrivals a second, without users.")] = 0.0,
    seconds: Annotated[float, typer.Option(help="Duration of a round.")] = 8.0,
    rounds: Annotated[int, typer.Option(help="Rounds of each checkout.")] = 3,
) -> None:
    """Print the cost of a sentence, and this checkout's ratios to the others."""
    model = Artifacts(bundle.name, "int8", bundle.resolve(), Path(), texts)
    system = System(OWN, {"max_queue_seconds": _QUEUE_SECONDS})
    costs: dict[Path, list[SentenceCost]] = {}
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {
            checkout: stack.enter_context(running(system, model, logs / checkout.name, checkout))
            for checkout in [ROOT, *(other.resolve() for other in against or [])]
        }
        for number in range(rounds):
            for checkout, server in servers.items():
                load = {"rate": rate} if rate else {"concurrency": users}
                plan = LoadPlan(server.address, duration=seconds, warmup=1.0, seed=number, **load)
                cost = measure(server, plan, read_texts(texts))
                costs.setdefault(checkout, []).append(cost)
    for checkout, found in costs.items():
        console.print(f"{checkout}: medians of {rounds} rounds, and ratios of this checkout to it")
        for name in _names():
            values = [getattr(cost, name) for cost in found]
            pairs = zip(costs[ROOT], values, strict=True)
            ratios = sorted(getattr(own, name) / value for own, value in pairs)
            shown = f"{ratios[0]:.2f} to {ratios[-1]:.2f}, median {statistics.median(ratios):.2f}"
            console.print(f"{name:>8} {statistics.median(values):8.2f}   {shown}")


def _names() -> list[str]:
    return [field.name for field in dataclasses.fields(SentenceCost)]


if __name__ == "__main__":
    typer.run(main)

"""The soak: an hour at 90 % of the capacity, without drift. `python -m tests.robustness.soak.run`.

First all texts are translated a few times at full speed. Then requests arrive at random (Poisson),
with texts of mixed lengths: most are translated greedily, some streamed, some cancelled, a few with
a beam. At the end, the server's latency is compared with that of one that was just started.

Exit status: 0 if all requirements are met, 1 if not, 130 after Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.benchmark import Conclusion, Measurement, console, run_benchmark
from bench.load.errors import LoadError, ResultsError
from bench.load.results import Results, about_machine, read_results
from bench.load.scrape import scrape
from bench.load.source import read_texts
from bench.load.units import Slo, format_seconds, parse_duration, parse_slo
from bench.recompute import SUMMARY_FILE, read_summary, write_report, write_summary
from bench.server_process import Running, environment
from bench.suite.artifacts import WORK, Artifacts, longest_speed_text, prepare_speed_model
from bench.suite.points import ENGINE, own_system
from bench.suite.reference import find_capacity
from bench.suite.suite import Suite, remembered
from bench.suite.systems import running
from dragoman.client import Client
from dragoman.options import Search
from dragoman.results import TranslationError
from tests.robustness.soak import ageing, report
from tests.robustness.soak.canceller import Canceller
from tests.robustness.soak.minutes import errors, high_percentile, time_slices

UNARY, STREAMS, BEAMS, CANCELS = "unary", "streams", "beams", "cancels"

# Shares of the requests. A beam of 4 computes four rows, so a few are much of the work.
_SHARES = {UNARY: 0.815, STREAMS: 0.12, BEAMS: 0.015, CANCELS: 0.05}
# The work of one request, in greedy unary requests; of a cancelled one, at most.
_BEAM = 4
_WEIGHTS = {UNARY: 1.0, STREAMS: 1.0, BEAMS: float(_BEAM), CANCELS: 1.0}
_ARGUMENTS = {
    UNARY: [],
    STREAMS: ["--stream"],
    BEAMS: ["--beam-size", str(_BEAM), "--early-stopping", "first"],
}
_PATIENCE_SECONDS = 0.5
_SETTLE_TRIES = 50
_FILL_TEXTS, _FILL_BEAMS, _FILL_SECONDS = 1000, 100, 300.0  # of one call
_ABOUT = ("started_at", "processor", "cpus", "onnxruntime", "revision")
_HELD = ("dragoman_rows_used", "dragoman_waiting_sentences", "dragoman_requests_in_flight")


@dataclass(frozen=True)
class SoakPlan:
    """The rate and the durations of a soak.

    Attributes:
        rate: requests per second, of all kinds.
        seconds: measured time.
        num_fills: number of rounds of all texts before it, so that memory has its working size.
        num_pairs: number of blocks of requests to each server in the comparison with a new one.
    """

    rate: float
    seconds: float
    num_fills: int = 4
    num_pairs: int = 24

    @property
    def slice_seconds(self) -> float:
        """A minute; less in a short soak, so that it has 20 slices."""
        return min(60.0, self.seconds / 20)

    @property
    def warmup_seconds(self) -> float:
        """The warm-up, which is not measured; shorter for a short soak."""
        return min(10.0, self.seconds / 5)


class Loads:
    """The processes that make the load, and the clients that cancel.

    Args:
        plan: rates and durations.
        server: server under load.
        texts: file of texts to send.
        directory: directory for the results of each process.
    """

    def __init__(self, plan: SoakPlan, server: Running, texts: Path, directory: Path) -> None:
        self._plan = plan
        self._server = server
        self._texts = texts
        self._directory = directory
        self.canceller = Canceller(
            server.address, read_texts(texts), _SHARES[CANCELS] * plan.rate, _PATIENCE_SECONDS
        )

    async def run(self) -> None:
        """Run all loads to their end. If cancelled, stop them; they still write their results."""
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable, *self._arguments(kind, number), env=environment(),
                stdout=asyncio.subprocess.DEVNULL,
            )
            for number, kind in enumerate(_ARGUMENTS)
        ]  # fmt: skip
        ended = asyncio.gather(*(process.wait() for process in processes))
        cancelling = asyncio.create_task(
            self.canceller.run(self._plan.warmup_seconds + self._plan.seconds)
        )
        try:
            await asyncio.shield(ended)
            await cancelling
        except asyncio.CancelledError:
            cancelling.cancel()
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGINT)
            await ended
            raise

    def _arguments(self, kind: str, seed: int) -> list[str]:
        plan = self._plan
        metrics = self._server.metrics_url if kind == UNARY else "none"
        return [
            "-m", "cli.main", "load", "--server", self._server.address,
            "--source", str(self._texts), "--rate", f"{_SHARES[kind] * plan.rate:.6g}",
            "--duration", f"{plan.seconds:g}s", "--warmup", f"{plan.warmup_seconds:g}s",
            "--timeout", "300s", "--seed", str(seed), "--metrics", metrics,
            "--output", str(self._directory / kind), *_ARGUMENTS[kind],
        ]  # fmt: skip


def mean_weight() -> float:
    """The work of a mean request of the mix; a greedy unary request is 1."""
    return sum(share * _WEIGHTS[kind] for kind, share in _SHARES.items())


def fill_rows(server: Running, texts: Sequence[str], num_rounds: int) -> None:
    """Translate many texts at once, so that the server has touched the memory that they need.

    The kernel commits a page of the caches when it is first written. Without this, memory would
    grow for hours under a load that fills all rows only now and then.

    Args:
        server: the server.
        texts: the texts of the load. Copies of the longest, two for each row, go before them; the
            same with a beam, and some of the texts, after them.
        num_rounds: repetitions.

    Raises:
        LoadError: the server fails.
    """
    num_rows = round(scrape(server.metrics_url, 0.0).values["dragoman_rows"])
    longest = longest_speed_text()
    flood = [*[longest] * (2 * num_rows), *texts]
    calls = [
        (flood[begin : begin + _FILL_TEXTS], Search())
        for begin in range(0, len(flood), _FILL_TEXTS)
    ]
    # The hypotheses of a beam that don't end go on for longer than any translation.
    wide = [longest] * (2 * max(1, num_rows // _BEAM))
    calls.append(([*wide, *texts[:_FILL_BEAMS]], Search(beam_size=_BEAM)))
    try:
        with Client(server.address, timeout=_FILL_SECONDS) as client:
            for contents, search in calls * num_rounds:
                for translation in client.translate(contents, search=search).translations:
                    if translation.error:
                        raise translation.error
    except TranslationError as exc:
        raise LoadError(f"the rows could not be filled: {exc}") from exc


def left_over(server: Running) -> dict[str, float]:
    """The metrics that do not return to zero within seconds after the load."""
    held: dict[str, float] = {}
    for _ in range(_SETTLE_TRIES):
        values = scrape(server.metrics_url, 0.0).values
        held = {name: values[name] for name in _HELD if values.get(name)}
        if not held:
            break
        time.sleep(0.1)
    return held


def collect(
    plan: SoakPlan,
    directory: Path,
    canceller: Canceller,
    held: dict[str, float],
    facts: dict[str, Any],
) -> report.Soak:
    """The soak's figures from the results of its loads.

    Raises:
        ResultsError: the main part has none.
    """
    parts: dict[str, Results] = {}
    problems = []
    for kind in _ARGUMENTS:
        try:
            parts[kind] = read_results(directory / kind)
            problems += [f"{kind}: {problem}" for problem in parts[kind].summary().problems]
        except ResultsError as exc:
            if kind == UNARY:
                raise
            problems.append(f"{kind}: {exc}")
    percentile = high_percentile(0.9 * _SHARES[UNARY] * plan.rate * plan.slice_seconds)
    # A refused call counts, even if it was to be cancelled.
    failed = Counter(errors(list(parts.values()))) + canceller.errors
    said = "; ".join(f"{code}: {message}" for code, message in canceller.messages.items())
    num_ended = canceller.num_answered + canceller.errors.total()
    return report.Soak(
        facts=facts | ({"calls to be cancelled failed with": said} if said else {}),
        slices=time_slices(parts[UNARY], plan.slice_seconds, percentile),
        percentile=percentile,
        errors=dict(sorted(failed.items())),
        num_requests=num_ended + sum(len(results.run.samples) for results in parts.values()),
        num_cancelled=canceller.num_cancelled,
        left_over=held,
        problems=problems,
    )


def write(directory: Path, soak: report.Soak) -> None:
    """Store the summary and the report."""
    write_summary(directory, soak.to_dict())
    write_report(directory)


def capacity_rate(directory: Path, artifacts: Artifacts, slo: Slo) -> float:
    """The server's capacity of greedy unary requests at a promise; measured once.

    Raises:
        LoadError: there is none.
    """

    def measure() -> dict[str, Any]:
        suite = Suite(ENGINE, directory, artifacts)
        rate = find_capacity(suite, own_system(), slo, 10.0)
        if rate is None:
            raise LoadError(f"the server carries no rate at {slo}")
        return {"rate": rate, "slo": str(slo)}

    return float(remembered(directory / "capacity.json", measure)["rate"])


def soak(
    directory: Path, artifacts: Artifacts, plan: SoakPlan, facts: dict[str, Any]
) -> report.Soak:
    """Load the server, compare it with a new one, and write the report.

    Raises:
        KeyboardInterrupt: Ctrl-C; what was measured until then has been written.
        LoadError: the server failed when no load was to be measured.
    """
    raw = directory / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    logs = directory / "logs"
    with running(own_system(), artifacts, logs / "server.log") as server:
        texts = read_texts(artifacts.texts)
        fill_rows(server, texts, plan.num_fills)
        loads = Loads(plan, server, artifacts.texts, raw)
        try:
            asyncio.run(loads.run())
        finally:
            found = collect(plan, raw, loads.canceller, left_over(server), facts)
            write(directory, found)
        with running(own_system(), artifacts, logs / "fresh.log") as fresh:
            pairs = asyncio.run(
                ageing.compare(server.address, fresh.address, texts, plan.num_pairs)
            )
    found = dataclasses.replace(found, pairs=pairs)
    write(directory, found)
    return found


def measure(
    directory: Path,
    artifacts: Artifacts,
    seconds: float,
    slo: Slo,
    share: float,
    rate: float | None,
) -> None:
    """Find the capacity, unless `rate` is given, and soak the server at its share of that.

    Raises:
        LoadError: the server fulfils the promise at no rate, or failed.
    """
    facts: dict[str, Any] = {
        "name": directory.name, "model": f"speed model, {artifacts.name}, {artifacts.precision}"
    }  # fmt: skip
    if rate is None:
        capacity = capacity_rate(directory, artifacts, slo)
        rate = share * capacity / mean_weight()
        facts["capacity"] = (
            f"{capacity:.4g} greedy requests/s at {slo}; of this mix "
            f"{capacity / mean_weight():.4g}/s, since a beam of 4 counts as four (a mean "
            f"request as {mean_weight():.3g}); the load is {share:.0%} of that"
        )
    facts |= {
        "load": f"{rate:.4g} requests/s for {format_seconds(seconds)}: "
        + ", ".join(f"{part:.1%} {kind}" for kind, part in _SHARES.items()),
        **{name: value for name, value in about_machine().items() if name in _ABOUT},
    }
    console.print(f"{facts['load']}", soft_wrap=True)
    soak(directory, artifacts, SoakPlan(rate, seconds), facts)


def conclude(directory: Path) -> Conclusion:
    """Make the report; returns it, and whether all requirements are met."""
    if not (directory / SUMMARY_FILE).exists():
        return Conclusion(passed=False)
    found = report.Soak.from_dict(read_summary(directory))
    return Conclusion([report.render(found)], all(one.kept for one in report.criteria(found)))


def main(
    duration: Annotated[str, typer.Option(help="How long, such as 2m or 1h.")] = "1h",
    share: Annotated[float, typer.Option(help="Of the capacity.", min=0.01, max=2.0)] = 0.9,
    slo: Annotated[str, typer.Option(help="The promise that the capacity is for.")] = "p99=2s",
    rate: Annotated[
        float | None, typer.Option(help="Requests a second, instead of a share of the capacity.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Default: runs/bench/<date>-<machine>-soak.")
    ] = None,
    work: Annotated[Path, typer.Option(help="Where models are made.")] = WORK,
    size: Annotated[str, typer.Option(help="Of the speed model: base, or small.")] = "base",
) -> None:
    """Keep the server under load and check that memory and latency do not drift."""

    def prepare(directory: Path) -> list[Measurement]:
        promise, seconds = parse_slo(slo), parse_duration(duration, "--duration")
        artifacts = prepare_speed_model(work, "int8", size)
        arguments = (directory, artifacts, seconds, promise, share, rate)
        return [Measurement(report.SOAK, lambda: measure(*arguments))]

    run_benchmark(report.SOAK, output, prepare, conclude)


if __name__ == "__main__":
    typer.run(main)

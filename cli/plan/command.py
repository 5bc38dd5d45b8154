"""`dragoman plan`: replicas, cores, memory and cost for a rate and a latency target."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import fail, fail_without
from cli.output_files import write_whole, writes

if TYPE_CHECKING:
    from cli.plan.planner import Demand, ScenarioPlan
    from cli.plan.replica import MeasuredReplica


@writes("output", "picture")
def plan(
    rate: Annotated[
        float | None, typer.Option(help="Sentences a second, a call each.", show_default=False)
    ] = None,
    p99: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Target for the 99th percentile of the latency, such as 500ms or 2s.",
            show_default=False,
        ),
    ] = "",
    texts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Sample of the sentences to translate, one a line. With --replica: only to "
            "estimate other lengths than those that were measured.",
            show_default=False,
        ),
    ] = None,
    price: Annotated[
        str,
        typer.Option(
            metavar="PRICE", help="Price of a core, such as 0.05/core-hour.", show_default=False
        ),
    ] = "",
    replica: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A replica that was measured before.", show_default=False
        ),
    ] = None,
    measure: Annotated[
        str,
        typer.Option(
            metavar="BUNDLE|HOST:PORT",
            help="Measured target: a model, which is served on this machine, or a server that "
            "nothing else uses. Default: the model of this installation.",
            show_default=False,
        ),
    ] = "",
    metrics: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Metrics of the measured server. Default: port 9464 of its host.",
            show_default=False,
        ),
    ] = "",
    cores: Annotated[
        int | None,
        typer.Option(
            help="CPU cores of a replica. A model is measured on this many cores of this machine; "
            "default: all. Required for a server.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Duration of the measurement, in seconds.")] = 35,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the measured replica, for --replica.", show_default=False
        ),
    ] = None,
    burstiness: Annotated[
        float,
        typer.Option(
            help="Variance of the gaps between calls over their squared mean; 1: Poisson."
        ),
    ] = 1.0,
    routing: Annotated[
        str,
        typer.Option(
            help="Balancing of calls: least-request (Envoy's: of two random replicas, the one "
            "with fewer calls), round-robin or random."
        ),
    ] = "least-request",
    surge: Annotated[
        float,
        typer.Option(help="Also plan for a rate that suddenly rises by this factor."),
    ] = 1.0,
    scale_delay: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Time until new replicas serve after a surge or a lost zone.",
        ),
    ] = "60s",
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw p99 against replicas, as SVG.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.", min=0)] = 0,
) -> None:
    """Plan capacity: replicas, cores, memory and cost for a rate and a latency target.

    A replica is measured with closed loops of users, or read from a file. Then replicas behind a
    balancer are simulated with its step times: all of them, during a rolling restart, and without
    one of three zones. The plan has the smallest number of replicas that keeps the target in each.
    Without --rate, the replica is only measured.
    """
    from bench.load.errors import LoadError
    from cli.plan.planner import UnreachableError
    from cli.plan.replica import ReplicaError
    from cli.plan.units import parse_price

    try:
        demand = None
        if rate is not None:
            demand = _demand(rate, p99, burstiness, routing, surge, scale_delay)
        elif p99 or price or picture or as_json or replica:
            fail("--rate is needed: sentences a second", 2)
        core_hour = parse_price(price) if price else None
        if replica is None:
            found = _measured(measure, metrics, texts, cores, seconds)
            if output is not None:
                found.write(output)
        else:
            found = _stored(replica, texts, measure, output, cores)
        if demand is None:
            typer.echo(_describe(found), err=output is None and as_json)
            return
        typer.echo(_describe(found), err=True)
        _plan(found, demand, core_hour, picture, as_json, seed)
    except (ReplicaError, UnreachableError) as exc:
        fail(str(exc))
    except LoadError as exc:
        fail(str(exc), 2)
    except ValueError as exc:
        fail(f"--measure: {exc}", 2)


def _demand(
    rate: float, p99: str, burstiness: float, routing: str, surge: float, scale_delay: str
) -> Demand:
    from bench.load.errors import PlanError
    from cli.plan.planner import Demand
    from cli.plan.simulation import ROUTINGS
    from cli.plan.units import check_at_least, parse_target

    check_at_least("--rate", rate, 0.0, above=True)
    if not p99:
        fail("--p99 is needed: a latency target, such as 500ms", 2)
    check_at_least("--burstiness", burstiness, 0.0, above=True)
    check_at_least("--surge", surge, 1.0)
    if routing not in ROUTINGS:
        raise PlanError(f"--routing must be one of {', '.join(ROUTINGS)}, not {routing!r}")
    return Demand(
        rate=rate,
        p99_seconds=parse_target(p99, "--p99"),
        burstiness=burstiness,
        routing=routing,  # type: ignore[arg-type]  # checked above
        scale_seconds=parse_target(scale_delay, "--scale-delay"),
        surge=surge,
    )


def _stored(
    path: Path, texts: Path | None, measure: str, output: Path | None, cores: int | None
) -> MeasuredReplica:
    from bench.load.source import read_texts
    from cli.plan.replica import MeasuredReplica

    for option, given in (("--measure", measure), ("--output", output), ("--cores", cores)):
        if given:
            fail(f"{option}: with --replica, nothing is measured", 2)
    found = MeasuredReplica.read(path)
    return found if texts is None else found.with_texts(read_texts(texts))


def _measured(
    place: str, metrics: str, texts: Path | None, cores: int | None, seconds: float
) -> MeasuredReplica:
    """Measure a model on this machine, or a server."""
    import importlib.util

    from bench.load.source import read_texts
    from cli.plan.units import check_at_least

    if importlib.util.find_spec("hdrh") is None:
        fail_without("what measuring needs", "bench")
    if texts is None:
        fail("--texts FILE is needed: a sample of the sentences, one a line", 2)
    check_at_least("--seconds", seconds, 1.0)
    from bench.server_process import Running
    from cli.plan.measurement import measure, served_bundle
    from dragoman.addresses import server_address
    from model.bundle.processor import num_usable_cores

    def show(line: str) -> None:
        typer.echo(line, err=True)

    sample = read_texts(texts)
    with contextlib.ExitStack() as stack:
        if (bundle := _bundle(place)) is None:
            if cores is None:
                fail("--cores is needed: the number of cores of the measured server", 2)
            check_at_least("--cores", cores, 1)
            address = server_address(place)
            url = metrics or f"http://{address.rpartition(':')[0]}:9464/metrics"
            server = Running(address, url)
        else:
            usable = num_usable_cores()
            cores = usable if cores is None else cores
            check_at_least("--cores", cores, 1)
            if cores > usable:
                fail(f"--cores: this machine has {usable}, not {cores}", 2)
            server = stack.enter_context(served_bundle(bundle, _some_cores(cores, usable)))
        return measure(server, sample, cores=cores, seconds=seconds, report=show)


def _bundle(place: str) -> Path | None:
    """The directory of the model to serve; None if the place is a server."""
    from service.settings import shipped_models

    if not place:
        return shipped_models()[0]
    path = Path(place)
    if path.is_dir():
        return path
    if ":" not in place:
        fail(f"--measure: {place!r} is neither the directory of a model nor HOST:PORT", 2)
    return None


def _some_cores(cores: int, usable: int) -> Sequence[int] | None:
    """The numbers of the cores to serve on, of those of this process; None for all."""
    import os

    if cores == usable or not hasattr(os, "sched_getaffinity"):  # only Linux can choose
        return None
    return sorted(os.sched_getaffinity(0))[:cores]


def _describe(replica: MeasuredReplica) -> str:
    return (
        f"replica: {replica.model}, {replica.cores} cores, "
        f"{replica.memory_bytes / 2**20:,.0f} MiB; sentences of "
        f"{replica.mean_source_tokens:.1f} tokens and {replica.mean_steps:.1f} steps: "
        f"at most {replica.capacity():.3g} a second"
    )


def _plan(
    replica: MeasuredReplica,
    demand: Demand,
    core_hour: float | None,
    picture: Path | None,
    as_json: bool,
    seed: int,
) -> None:
    from cli.plan import report
    from cli.plan.planner import FleetPlanner

    planner = FleetPlanner(replica, demand, seed, lambda line: typer.echo(line, err=True))
    plans = planner.plan()
    if picture is not None:
        try:
            write_whole(picture, [report.picture(plans, demand).encode()])
        except OSError as exc:
            fail(f"--picture: {picture}: {exc.strerror or exc}")
    if as_json:
        typer.echo(json.dumps(report.as_json(plans, replica, demand, core_hour), indent=1))
        return
    _print_table(plans, replica, demand, core_hour)


def _print_table(
    plans: list[ScenarioPlan], replica: MeasuredReplica, demand: Demand, core_hour: float | None
) -> None:
    from rich.console import Console
    from rich.table import Table

    from bench.load.units import format_seconds
    from cli.plan import report

    header = report.HEADER if core_hour is None else (*report.HEADER, *report.PRICES)
    table = Table(*header, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for row in report.table_rows(plans, replica, demand, core_hour):
        table.add_row(*row)
    Console().print(table)
    most = max(plans, key=lambda one: one.chosen.replicas)
    Console().print(
        f"{most.chosen.replicas:,} replicas keep p99 within "
        f"{format_seconds(demand.p99_seconds)} in all of them, at {demand.rate:,g} sentences/s.",
        style="bold",
    )

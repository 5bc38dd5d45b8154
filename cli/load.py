"""`dragoman load`: throughput and latency of a server under load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import fail, fail_without
from cli.options import (
    DEFAULT_SERVER,
    ModelName,
    Server,
    SourceLanguage,
    TargetLanguage,
    TlsArgument,
    with_tls,
)

if TYPE_CHECKING:
    from rich.console import Console

    from bench.load.plan import LoadPlan
    from bench.load.session import Session

EXIT_INVALID = 3

load_app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,  # as in cli.main
    context_settings={"help_option_names": ["-h", "--help"]},
)


@load_app.callback()
@with_tls
def load(
    context: typer.Context,
    server: Server = DEFAULT_SERVER,
    tls: TlsArgument = None,
    source: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Texts to send, one per line. Required.", show_default=False
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Open loop: requests per second, independent of the answers."),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(help="Closed loop: number of users, each waiting for its last answer."),
    ] = None,
    arrivals: Annotated[
        str, typer.Option(help="Arrivals of an open loop: poisson, constant or gamma.")
    ] = "poisson",
    burstiness: Annotated[
        float,
        typer.Option(help="Variance of gamma's gaps over their squared mean. 1 is Poisson."),
    ] = 1.0,
    duration: Annotated[str, typer.Option(help="Time to measure, such as 60s or 2m.")] = "60s",
    warmup: Annotated[str, typer.Option(help="Time to load before measuring.")] = "5s",
    timeout: Annotated[str, typer.Option(help="Time limit of a call.")] = "60s",
    stream: Annotated[
        bool, typer.Option("--stream", help="Use StreamTranslate; measure the first piece of text.")
    ] = False,
    texts_per_request: Annotated[int, typer.Option(help="Texts in each request.")] = 1,
    seed: Annotated[
        int, typer.Option(help="Seed of the arrivals and of the order of the texts.")
    ] = 0,
    processes: Annotated[int, typer.Option(help="Processes that generate the load.")] = 1,
    source_language: SourceLanguage = "",
    target_language: TargetLanguage = "",
    model: ModelName = "",
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Token limit of each sentence.")
    ] = None,
    split_sentences: Annotated[
        bool | None, typer.Option(help="Split texts into sentences. Default: the server's choice.")
    ] = None,
    beam_size: Annotated[
        int, typer.Option(help="Hypotheses of the search for each sentence; 1 is greedy.")
    ] = 1,
    early_stopping: Annotated[
        str,
        typer.Option(
            help="End of a beam search: heuristic, first or never. Default: the server's choice.",
            show_default=False,
        ),
    ] = "",
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="pN=TIME", help="Service-level objective, such as p99=500ms; for the goodput."
        ),
    ] = None,
    find_capacity: Annotated[
        bool,
        typer.Option(
            "--find-capacity",
            help="Search for the highest Poisson rate that meets --slo, to within 10 %. Each rate "
            "is tried for --duration at least. It begins with --rate, or with an estimate.",
        ),
    ] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The server's metrics; `none` for no metrics. "
            "Default: port 9464 of the server's host.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="An empty or new directory for the results: JSON, raw samples, an HTML report.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Put a server under load and measure it.

    Latency counts from the time that a request was due, so that a stalled server can't hide the
    requests that it delayed. Exit status: 0; 1 after an error; 3 if the figures are not valid,
    because the load generator could not keep up or the run was interrupted.
    """
    if context.invoked_subcommand is not None:
        return
    _check_installed()
    from rich.console import Console

    from bench.load.capacity import ESTIMATE_USERS
    from bench.load.errors import LoadError
    from bench.load.plan import LoadPlan
    from bench.load.session import Session, about_source
    from bench.load.source import read_texts
    from bench.load.units import parse_duration, parse_slo

    try:
        if find_capacity and concurrency is not None:
            fail("--find-capacity searches for a rate: leave --concurrency out", 2)
        if source is None:
            fail("--source FILE is needed: texts to send, one per line", 2)
        users = concurrency
        if find_capacity and rate is None:
            users = max(ESTIMATE_USERS, processes)
        plan = LoadPlan(
            server=server,
            tls=tls,
            rate=rate,
            concurrency=users,
            arrivals=arrivals,  # type: ignore[arg-type]  # the plan checks it
            burstiness=burstiness,
            duration=parse_duration(duration, "--duration"),
            warmup=parse_duration(warmup, "--warmup"),
            timeout=parse_duration(timeout, "--timeout"),
            stream=stream,
            texts_per_request=texts_per_request,
            seed=seed,
            processes=processes,
            source_language=source_language,
            target_language=target_language,
            model=model,
            max_new_tokens=max_new_tokens,
            split_sentences=split_sentences,
            beam_size=beam_size,
            early_stopping=early_stopping,  # type: ignore[arg-type]  # the plan checks it
        )
        texts = read_texts(source)
        session = Session(
            texts,
            None if slo is None else parse_slo(slo),
            _metrics_url(server, metrics, "https" if tls else "http"),
            about_source(source, texts),
        )
        console = Console(stderr=True)
        run = _find_capacity if find_capacity else _run
        run(session, plan, output, console)
    except LoadError as exc:
        fail(str(exc))


@load_app.command("compare")
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Results of one run, or of several.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Likewise.")],
) -> None:
    """Report whether two runs differ beyond their noise.

    A and B are directories written by --output, or directories of such directories.
    """
    _check_installed()
    from rich.console import Console

    from bench.load.compare_report import print_comparison
    from bench.load.errors import LoadError

    try:
        print_comparison(Console(), a, b)
    except LoadError as exc:
        fail(str(exc))


def _run(session: Session, plan: LoadPlan, output: Path | None, console: Console) -> None:
    from rich.console import Console

    from bench.load.terminal import live_view, print_results

    with live_view(console) as observer:
        results = session.run(plan, output, observer)
    print_results(Console(), results)
    if output is not None:
        console.print(f"Written to {output}")
    if results.run.broken_off == "interrupted":
        raise typer.Exit(130)
    if results.run.broken_off:
        raise typer.Exit(1)
    if not results.summary().valid:
        raise typer.Exit(EXIT_INVALID)


def _find_capacity(session: Session, plan: LoadPlan, output: Path | None, console: Console) -> None:
    from rich.console import Console
    from rich.table import Table

    from bench.load import capacity_report
    from bench.load.capacity import CapacityTest, Trial
    from bench.load.terminal import live_view

    def show(trial: Trial) -> None:
        console.print(str(trial))

    with live_view(console) as observer:
        capacity = CapacityTest(session, plan).run(output, observer, show)
    table = Table(*capacity_report.HEADER, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in table.columns[:-1]:
        column.no_wrap = True  # whole units at 80 columns; the verdict may wrap
    for row in capacity_report.rows(capacity):
        table.add_row(*row)
    Console().print(table)
    Console().print(capacity_report.sentence(capacity), style="bold")
    if output is not None:
        capacity_report.write(output, capacity, {"plan": plan.to_dict(), **session.about})
        console.print(f"Written to {output}")
    if capacity.ended_early == "interrupted":
        raise typer.Exit(130)
    if capacity.ended_early or capacity.rate is None:
        raise typer.Exit(EXIT_INVALID)


def _check_installed() -> None:
    """Fail if the packages for load tests are not installed."""
    import importlib.util

    if importlib.util.find_spec("hdrh") is None:
        fail_without("what load tests need", "bench")


def _metrics_url(server: str, given: str | None, scheme: str) -> str | None:
    if given is not None:
        return None if given == "none" else given
    # Schemes such as dns:///host:port have the host at the end.
    host = server.rpartition("/")[2].rpartition(":")[0] or "127.0.0.1"
    return f"{scheme}://{host}:9464/metrics"

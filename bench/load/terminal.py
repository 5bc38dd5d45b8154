"""A run on the terminal: a live table while it goes on, the tables at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bench.load import tables
from bench.load.results import Results
from bench.load.session import RunProgress
from bench.load.statistics import Summary, distribution
from bench.load.units import format_seconds

_RECENT_SECONDS = 5.0


@contextlib.contextmanager
def live_view(console: Console) -> Iterator[Callable[[RunProgress], bool]]:
    """Show a run while it goes on, if the console is a terminal.

    Yields:
        An observer for `Session.run`, which never ends the run.
    """
    if not console.is_terminal:
        yield lambda progress: False
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def show(progress: RunProgress) -> bool:
            live.update(_live_table(progress), refresh=True)
            return False

        yield show


def _live_table(progress: RunProgress) -> Table:
    plan = progress.run.plan
    since = progress.seconds - _RECENT_SECONDS
    recent = []
    for sample in reversed(progress.run.samples):  # in the order of their ends
        if sample.ended < since:
            break
        recent.append(sample)
    ok = distribution([sample.latency for sample in recent if sample.ok])
    failed = sum(sample.failed for sample in recent)
    phase = "warm-up" if progress.seconds < plan.warmup else "measuring"
    if progress.seconds > plan.total_seconds:
        phase = "waiting for the last answers"
    values = progress.snapshots[-1].values if progress.snapshots else {}
    table = Table()
    rows = [
        (phase, f"{max(0.0, progress.seconds):.0f} of {plan.total_seconds:g} s"),
        ("answered", f"{ok.count / _RECENT_SECONDS:,.1f} requests/s"),
        ("failed", f"{failed / _RECENT_SECONDS:,.1f} requests/s"),
        ("in flight", f"{progress.run.num_in_flight:,}"),
        ("latency p50", _or_dash(ok.at(50))),
        ("latency p99", _or_dash(ok.at(99))),
        ("latency max", _or_dash(ok.max)),
        ("server: waiting", f"{values.get('dragoman_waiting_sentences', 0):,.0f}"),
        ("server: rows used", f"{values.get('dragoman_rows_used', 0):,.0f}"),
    ]
    table.add_column(f"last {_RECENT_SECONDS:g} s")
    table.add_column("", justify="right", min_width=16)
    for name, value in rows[: 9 if values else 7]:
        table.add_row(name, value)
    return table


def _or_dash(seconds: float | None) -> str:
    return "–" if seconds is None else format_seconds(seconds)


def print_results(console: Console, results: Results) -> None:
    """The tables of a run, and whether it is valid."""
    summary = results.summary()
    server = results.server()
    parts: list[Table | Text] = [
        Text(tables.headline(results)),
        _plain(tables.figures(results, summary)),
    ]
    if rows := tables.latencies(summary):
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)  # fits 80 columns
        for name in tables.LATENCY_HEADER:
            table.add_column(name, justify="right" if name else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        parts += [table, Text(tables.footnote(), style="dim")]
    if server is not None:
        parts += [Text("What the server says"), _plain(tables.server(server))]
    elif "metrics_error" in results.about:
        parts.append(Text(f"Without the server's own figures: {results.about['metrics_error']}"))
    console.print(Group(*parts))
    print_verdict(console, summary)


def print_verdict(console: Console, summary: Summary) -> None:
    """Whether the run is valid, and if not, why."""
    if summary.valid:
        console.print("The run is valid: the load generator kept its schedule.", style="green")
    for problem in summary.problems:
        console.print(Text(f"NOT A VALID RUN: {problem}", style="bold red"))


def _plain(rows: tables.Rows) -> Table:
    table = Table(show_header=False, box=None)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table

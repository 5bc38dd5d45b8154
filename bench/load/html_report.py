"""A run as one self-contained HTML file."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from html import escape

from bench.load import tables
from bench.load.results import Results
from bench.load.sample import RequestSample
from bench.load.scrape import Snapshot
from bench.load.statistics import Summary
from model.evaluation.chart import Chart, Point, Series, thin

_MOST_DOTS = 4000

_STYLE = """
:root { color-scheme: light dark; --fg: #222; --bg: #fff; --soft: #8884;
  --c0: #2266cc; --c1: #dd7722; --c2: #22994d; --c3: #cc3344; --c4: #8855bb; }
@media (prefers-color-scheme: dark) { :root { --fg: #ddd; --bg: #161616; --c0: #6aa4ff; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--fg); background: var(--bg);
  max-width: 820px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums; }
td, th { text-align: right; padding: .2em .7em; border-bottom: 1px solid var(--soft); }
td:first-child, th:first-child, table.plain td { text-align: left; }
figure { margin: 2em 0; } figcaption { font-weight: 600; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--fg); }
svg .axis { stroke: var(--fg); } svg .grid { stroke: var(--soft); }
svg line.limit { stroke: var(--c3); stroke-dasharray: 6 4; } svg text.limit { fill: var(--c3); }
svg .line { fill: none; stroke-width: 1.6; } svg .dots { stroke-width: 3; stroke-linecap: round;
  stroke-opacity: .55; fill: none; }
.legend span { margin-right: 1.2em; font-size: 13px; } .legend span::before { content: "● "; }
.invalid { border: 2px solid var(--c3); padding: .6em 1em; } details pre { overflow-x: auto; }
""" + "".join(
    f"svg .c{n} {{ stroke: var(--c{n}); }} .legend .c{n} {{ color: var(--c{n}); }}\n"
    for n in range(5)
)


def page(title: str, body: str) -> str:
    """A whole document around `body`."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Rows of text as a table."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    kind = "" if header else ' class="plain"'
    return f"<table{kind}>{f'<tr>{head}</tr>' if header else ''}{body}</table>"


def render(results: Results) -> str:
    """The report of a run."""
    summary = results.summary()
    server = results.server()
    parts = [f"<p>{escape(tables.headline(results))}</p>", _verdict(summary)]
    parts += [
        table(tables.figures(results, summary)),
        table(tables.latencies(summary), tables.LATENCY_HEADER),
        f"<p><small>{escape(tables.footnote())} Latency counts from the time that a request was "
        "to be sent; “from sending” is what it would be without that.</small></p>",
        "<h2>What the server says</h2>",
    ]
    missing = results.about.get("metrics_error", "Its metrics were not read.")
    parts.append(table(tables.server(server)) if server else f"<p>{escape(missing)}</p>")
    parts += [chart.render() for chart in charts(results)]
    facts = {"plan": results.run.plan.to_dict(), **results.about}
    parts.append(
        "<details><summary>Settings and machine</summary>"
        f"<pre>{escape(json.dumps(facts, indent=1))}</pre></details>"
    )
    return page("Load test", "\n".join(parts))


def charts(results: Results) -> list[Chart]:
    """Latency against time, latency's distribution, queue and batch against time."""
    samples = sorted(results.run.samples, key=lambda sample: sample.scheduled)
    promise = [(str(results.slo), results.slo.seconds * 1e3)] if results.slo else []
    made = [
        _latency_over_time(samples, promise),
        _latency_distribution(results.run.measured(), promise),
    ]
    if results.server() is not None:
        made += [_queue_over_time(results.snapshots), _batch_over_time(results.snapshots)]
    return made


def _verdict(summary: Summary) -> str:
    if summary.valid:
        return "<p>The run is valid: the load generator kept its schedule.</p>"
    problems = "".join(f"<li>{escape(problem)}</li>" for problem in summary.problems)
    return f'<div class="invalid"><b>Not a valid run</b><ul>{problems}</ul></div>'


def _latency_over_time(samples: Sequence[RequestSample], promise: list[tuple[str, float]]) -> Chart:
    answered = [(s.scheduled, s.latency * 1e3) for s in samples if s.ok]
    failed = [(s.scheduled, s.latency * 1e3) for s in samples if s.failed]
    return Chart(
        "Latency against time",
        "scheduled time, s (warm-up included)",
        "latency, ms",
        [
            Series("answered", thin(answered, _MOST_DOTS), "dots", 0),
            Series("failed", thin(failed, _MOST_DOTS), "dots", 3),
        ],
        log_y=True,
        lines_at=promise,
    )


def _latency_distribution(
    samples: Sequence[RequestSample], promise: list[tuple[str, float]]
) -> Chart:
    """Latency by percentile, with an axis stretched towards 100 % as in HdrHistogram's plots."""
    ok = [sample for sample in samples if sample.ok]
    series = []
    for colour, (name, values) in enumerate(
        (
            ("from the scheduled time", sorted(s.latency for s in ok)),
            ("from sending", sorted(s.ended - s.sent for s in ok)),
        )
    ):
        series.append(Series(name, _by_percentile(values), "line", colour))
    ticks = [(0.0, "0"), (1.0, "90 %"), (2.0, "99 %"), (3.0, "99.9 %"), (4.0, "99.99 %")]
    longest = max((x for one in series for x, _ in one.points), default=0.0)
    return Chart(
        "Latency by percentile",
        "share of the requests that were faster",
        "latency, ms",
        series,
        log_y=True,
        x_ticks=[tick for tick in ticks if tick[0] <= longest],
        lines_at=promise,
    )


def _by_percentile(values: Sequence[float]) -> list[Point]:
    """(-log10(1 - share), ms): every nine has the same width."""
    count = len(values)
    ranks = sorted({round(count * (1 - 10 ** (-step / 40))) for step in range(40 * 6)})
    return [(-math.log10(1 - rank / count), values[rank] * 1e3) for rank in ranks if rank < count]


def _queue_over_time(snapshots: Sequence[Snapshot]) -> Chart:
    return Chart(
        "The server's queue against time",
        "time, s",
        "sentences",
        [
            Series("waiting", _gauge(snapshots, "dragoman_waiting_sentences"), "steps", 1),
            Series("calls in progress", _gauge(snapshots, "dragoman_requests_in_flight"), "steps"),
        ],
    )


def _batch_over_time(snapshots: Sequence[Snapshot]) -> Chart:
    rows = []
    for before, after in itertools.pairwise(snapshots):
        steps = _growth(before, after, "dragoman_step_rows_count")
        if steps:
            mean = _growth(before, after, "dragoman_step_rows_sum") / steps
            rows.append((after.seconds, mean))
    max_rows = _gauge(snapshots, "dragoman_rows")
    return Chart(
        "Batch size against time",
        "time, s",
        "rows",
        [
            Series("rows per step, mean between scrapes", rows, "line", 2),
            Series("rows used", _gauge(snapshots, "dragoman_rows_used"), "steps", 4),
        ],
        lines_at=[("rows", max_rows[-1][1])] if max_rows else [],
    )


def _gauge(snapshots: Sequence[Snapshot], name: str) -> list[Point]:
    return [(s.seconds, s.values[name]) for s in snapshots if name in s.values]


def _growth(before: Snapshot, after: Snapshot, name: str) -> float:
    return after.values.get(name, 0.0) - before.values.get(name, 0.0)

from __future__ import annotations

import dataclasses
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load.errors import ResultsError
from bench.load.html_report import render
from bench.load.plan import LoadPlan
from bench.load.results import Results, ResultsWriter, read_results
from bench.load.sample import COLUMNS, RequestSample, from_row, rounded, to_row
from bench.load.scrape import Snapshot
from bench.load.units import Slo
from model.evaluation.chart import Chart, Series, log_ticks, nice_ticks, thin
from tests.unit.bench.samples import open_run, sample

SLO = Slo(99, 0.5)


def made() -> Results:
    run = open_run([0.1, 0.2] * 100, lags=[0.001, 0.002], cpu_seconds=1.5)
    failed = sample(200, 1.99, 0.1, code="UNAVAILABLE", message="<gone> & away")
    streamed = sample(201, 1.995, 0.1, first=2.0, gaps=(0.01, 0.02))
    samples = [*run.samples, failed, streamed]
    counts = {"dragoman_step_rows_sum": 10.0, "dragoman_step_rows_count": 5.0}
    later = {"dragoman_step_rows_sum": 40.0, "dragoman_step_rows_count": 15.0}
    gauges = {"dragoman_rows": 8.0, "dragoman_rows_used": 3.0, "dragoman_waiting_sentences": 1.0}
    values, more = {**counts, **gauges}, {**later, **gauges}
    snapshots = [Snapshot(0.0, values, {}, {}), Snapshot(2.5, more, {}, {})]
    run = dataclasses.replace(run, samples=samples, num_scheduled=202)
    run = dataclasses.replace(run, samples=[rounded(s) for s in run.samples])
    return Results(run, SLO, snapshots, {"source": {"sha256": "abc"}})


def write(directory: Path, results: Results) -> None:
    writer = ResultsWriter(directory, results.run.plan, results.slo, results.about)
    writer.add(results.run.samples[:50])
    writer.finish(results, render(results))


def test_results_survive_the_disk(tmp_path: Path) -> None:
    results = made()
    write(tmp_path / "new" / "run", results)
    again = read_results(tmp_path / "new" / "run")
    assert again.summary() == results.summary()
    assert again.slo == results.slo
    assert again.about == results.about
    assert again.server() == results.server()
    stored = json.loads((tmp_path / "new" / "run" / "summary.json").read_text())
    assert stored["load"]["errors"] == {"UNAVAILABLE": 1}
    assert stored["server"]["rows_per_step"] == pytest.approx(3.0)


def test_what_was_flushed_can_be_read_after_a_kill(tmp_path: Path) -> None:
    results = made()
    writer = ResultsWriter(tmp_path / "run", results.run.plan, results.slo, {})
    writer.add(results.run.samples[:120])  # and nothing more: no finish, no close
    again = read_results(tmp_path / "run")
    assert len(again.run.samples) == 120
    assert "killed" in again.run.broken_off
    assert not again.summary().valid
    assert again.summary().num_ok > 0


def test_a_directory_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(ResultsError, match="not empty"):
        ResultsWriter(tmp_path, LoadPlan("", rate=1), None, {})
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_path_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="cannot write"):
        ResultsWriter(tmp_path / "file" / "run", LoadPlan("", rate=1), None, {})


@pytest.mark.parametrize("damage", ["{", '{"format_version": 99}', "{}"])
def test_damaged_results_are_reported_by_name(tmp_path: Path, damage: str) -> None:
    with pytest.raises(ResultsError, match=str(tmp_path)):
        read_results(tmp_path)
    write(tmp_path / "run", made())
    (tmp_path / "run" / "run.json").write_text(damage)
    with pytest.raises(ResultsError, match=str(tmp_path)):
        read_results(tmp_path / "run")


def test_columns_of_another_version_do_no_harm() -> None:
    before = sample(1, 2.0, 0.5, target_tokens=7)
    row = dict(zip(("number", "scheduled", "sent", "ended"), to_row(before)[:4], strict=True))
    again = from_row([*row, "of_the_future"], [*row.values(), "?"])
    assert again.latency == pytest.approx(0.5)
    assert again.reply.target_tokens == 0


@given(
    st.builds(
        sample,
        number=st.integers(0, 10**9),
        scheduled=st.floats(0, 1e5),
        latency=st.floats(0, 1e4),
        code=st.sampled_from(["OK", "UNAVAILABLE"]),
        message=st.text(),
        gaps=st.lists(st.floats(0, 100)).map(tuple),
        retry_after=st.none() | st.floats(0, 100),
    )
)
def test_samples_survive_json_to_the_microsecond(before: RequestSample) -> None:
    exact = rounded(before)
    again = from_row(list(COLUMNS), json.loads(json.dumps(to_row(exact))))
    assert again == exact
    assert again.latency == pytest.approx(before.latency, abs=2e-6)
    assert again.reply.gaps == pytest.approx(before.reply.gaps, abs=1e-6)


class _Links(HTMLParser):
    """Collects what a browser would fetch, and checks that tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.num_charts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.num_charts += tag == "svg"
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag != "meta":  # which has no end
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_stands_alone() -> None:
    html = render(made())
    parser = _Links()
    parser.feed(html)
    assert parser.fetched == []
    assert parser.open == []
    assert parser.num_charts == 4
    assert "url(" not in html
    assert "@import" not in html
    assert "&lt;gone&gt; &amp; away" in html  # the server's words are not the report's markup


def test_a_report_of_nothing_says_so() -> None:
    run = open_run([0.1])
    empty = Results(dataclasses.replace(run, samples=[], broken_off="interrupted"))
    html = render(empty)
    assert "No data." in html
    assert "interrupted" in html


def test_thinning_keeps_the_outliers() -> None:
    points = [(float(x), 1.0) for x in range(10_000)]
    points[4321] = (4321.0, 99.0)
    kept = thin(points, 100)
    assert len(kept) <= 110
    assert (4321.0, 99.0) in kept
    assert kept == sorted(kept)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_round_and_inside(low: float, span: float) -> None:
    ticks = nice_ticks(low, low + span)
    assert 1 <= len(ticks) <= 13
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)


def test_logarithmic_ticks() -> None:
    assert log_ticks(0.9, 11) == pytest.approx([1, 2, 5, 10])
    assert log_ticks(1, 1e6) == pytest.approx([1, 10, 100, 1e3, 1e4, 1e5, 1e6])


def test_a_chart_scales_points_into_its_frame() -> None:
    chart = Chart("t", "x", "y", [Series("s", [(0, 0), (10, 5)])])
    svg = chart.render()
    assert 'd="M70.0 258.0L744.0 ' in svg  # the first point sits in the corner of the axes

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from bench import recompute
from bench.benchmark import Interrupted, run_measurements
from bench.load.errors import LoadError
from bench.load.html_report import render
from bench.load.plan import LoadPlan
from bench.load.results import Results, ResultsWriter, completed
from bench.load.sample import ReplySample
from bench.load.statistics import Run, summarise
from bench.opus_model import opus_config
from bench.speed_model import speed_config
from bench.suite import report as suite_report
from bench.suite import run as suite_run
from bench.suite.agreement import compare_translations, read, write
from bench.suite.artifacts import Artifacts, Models, longest_speed_text, speed_texts
from bench.suite.cells import RunFigures
from bench.suite.points import ENGINE, FULL, QUICK, Load, own_system
from bench.suite.run import measurements
from bench.suite.scoring import Yardstick, score, yardstick
from bench.suite.suite import Suite
from bench.suite.systems import System, running
from service.things.scanned import TermRules
from service.things.text_parts import may_need_care
from tests.unit.bench.samples import open_run, sample


def store(
    report: Path,
    load: str,
    system: System,
    latency: float,
    repetition: int = 0,
    num_refused: int = 0,
) -> Path:
    run = open_run([latency] * 1000)
    refused = [
        dataclasses.replace(sample, reply=ReplySample(code="RESOURCE_EXHAUSTED"))
        for sample in run.samples[:num_refused]
    ]
    run = dataclasses.replace(run, samples=[*refused, *run.samples[num_refused:]])
    about = {
        "model": "base", "precision": "int8", "load": load, "system": system.to_dict(),
        "processor": "a processor", "cpus": 2, "operating_system": "Linux", "python": "3",
        "started_at": "today", "load_average": 0.0,
    }  # fmt: skip
    results = Results(run, about=about)
    directory = report / "runs" / "base-int8" / load / system.name / str(repetition)
    writer = ResultsWriter(directory, run.plan, None, about)
    writer.finish(results, render(results))
    return directory


def render_report(directory: Path) -> str:
    recompute.write_report(directory)
    return (directory / "report.md").read_text()


@pytest.fixture
def report(tmp_path: Path) -> Path:
    peer = System("ctranslate2", {"inter_threads": 2, "max_batch": 64})
    for repetition in range(2):
        store(tmp_path, "open-80pct", own_system(), 0.1, repetition)
        store(tmp_path, "open-80pct", peer, 0.2, repetition)
    store(tmp_path, "closed-8", own_system(), 0.1)
    store(tmp_path, "closed-64", own_system(), 0.3)
    store(tmp_path, "closed-64", peer, 0.15)
    facts = {"rate": 12.5, "what": "CTranslate2's capacity"}
    (tmp_path / "runs" / "base-int8" / "reference.json").write_text(json.dumps(facts))
    return tmp_path


def test_tables_come_from_the_raw_samples_alone(report: Path) -> None:
    for file in report.glob("runs/*/*/*/*/summary.json"):
        file.unlink()  # what is derived is not needed
    recompute.main(report)
    text = (report / "report.md").read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert [row[0].strip("| ") for row in rows[1:]] == [
        "closed-8", "closed-64", "closed-64", "open-80pct", "open-80pct"
    ]  # fmt: skip
    ours = next(row for row in rows if row[:2] == ["| open-80pct", "dragoman"])
    assert ours[2].startswith("9")  # answered within the second
    assert ours[4:7] == ["100 ms"] * 3
    assert ours[-1].startswith("2")
    assert "12.50 requests/s" in text
    assert "inter_threads 2, max_batch 64" in text


def test_what_is_missing_is_said(report: Path) -> None:
    doubts = render_report(report).partition("missing or disturbed")[2].partition("##")[0]
    lines = doubts.strip().splitlines()
    assert lines == ["- base int8: 2 loads measured once, 1 repeatedly"]
    file = report / "runs" / "base-int8" / "closed-8" / "dragoman" / "0" / "run.json"
    header = json.loads(file.read_text())
    header["ended"]["broken_off"] = "the server is gone"
    file.write_text(json.dumps(header))
    facts = {"suite": "full", "finished": False, "problems": ["base-fp32 closed-4: no memory"]}
    (report / "suite.json").write_text(json.dumps(facts))
    text = render_report(report)
    assert "- not measured: base-fp32 closed-4: no memory" in text
    assert "- base int8, closed-8, dragoman: a run was broken off: the server is gone" in text


def test_the_readme_gets_the_tables_between_its_marks(report: Path, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(
        f"before\n{suite_report.README_BEGIN}\nold\n{suite_report.README_END}\nafter\n"
    )
    recompute.main(report, readme)
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| base int8 | open-80pct |" in text
    assert "- Median latency: CTranslate2 is better at 1 of 2 loads: base int8 closed-64." in text
    recompute.main(report, readme)
    assert readme.read_text() == text
    readme.write_text("no marks")
    with pytest.raises(ValueError, match="benchmark: begin"):
        recompute.main(report, readme)


def test_only_runs_that_came_to_their_end_are_not_made_again(tmp_path: Path) -> None:
    directory = store(tmp_path, "closed-8", own_system(), 0.1)
    assert completed(directory) is not None
    file = directory / "run.json"
    header = json.loads(file.read_text())
    header["ended"]["broken_off"] = "interrupted"
    file.write_text(json.dumps(header))
    assert completed(directory) is None
    header["ended"] = None
    file.write_text(json.dumps(header))
    assert completed(directory) is None
    assert completed(tmp_path / "nothing") is None


def test_loads_become_plans() -> None:
    closed = Load(concurrency=8).plan("server:1", 20.0, 3.0, reference=99.0)
    assert (closed.concurrency, closed.rate, closed.duration) == (8, None, 20.0)
    opened = Load(share=0.8).plan("server:1", 20.0, 3.0, reference=10.0)
    assert (opened.concurrency, opened.rate, opened.arrivals) == (None, 8.0, "poisson")
    assert [load.name for load in QUICK.loads] == [
        "closed-1",
        "closed-8",
        "closed-64",
        "open-80pct",
    ]


def test_texts_have_the_lengths_of_real_sentences() -> None:
    texts = speed_texts(speed_config("small", 2000))
    assert len(texts) == 2000
    assert texts == speed_texts(speed_config("small", 2000))
    mean = sum(len(text.split()) for text in texts) / len(texts)
    assert 25 < mean < 40
    rules = TermRules("en", "de")
    for text in [*texts, *speed_texts(opus_config()), longest_speed_text()]:
        assert not may_need_care(text, rules), "the server would copy words"


def test_copied_texts_make_a_run_invalid() -> None:
    run = open_run([0.3] * 1000)
    copied = dataclasses.replace(run.samples[0], reply=ReplySample(target_tokens=0))
    for num_copied, is_valid in ((9, True), (10, False)):
        samples = [copied] * num_copied + run.samples[num_copied:]
        figures = RunFigures.of(Results(dataclasses.replace(run, samples=samples)))
        assert (figures.problems == []) is is_valid


def test_differing_translations_are_counted_and_kept(tmp_path: Path, report: Path) -> None:
    found = compare_translations(["a", "b", "c"], ["a", "x", "c"])
    assert found.different == [(1, "b", "x")]
    file = report / "runs" / "base-int8" / "agreement.json"
    write(file, found)
    assert read(file) == found
    assert "1 of 3 translations by CTranslate2 differ from ours." in render_report(report)


def artifacts(tmp_path: Path) -> Artifacts:
    return Artifacts("base", "int8", tmp_path / "bundle", tmp_path / "ct2", tmp_path / "texts")


def test_a_system_that_does_not_start_is_an_error_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "log"
    with (
        pytest.raises(LoadError, match=r"did not start.*bundle"),
        running(System("dragoman"), artifacts(tmp_path), log),
    ):
        pytest.fail("there is no bundle to serve")
    assert "bundle" in log.read_text()


OPEN = Load(share=0.8)


def test_open_loops_are_scored_by_the_highest_percentile_that_all_can_tell() -> None:
    few, some, many = (summarise(open_run([0.1] * count)) for count in (99, 100, 1000))
    assert yardstick([many, many], OPEN) is Yardstick.P99
    assert yardstick([many, some], OPEN) is Yardstick.P90
    assert yardstick([many, few], OPEN) is Yardstick.MEAN
    assert yardstick([], OPEN) is Yardstick.MEAN
    assert yardstick([many], Load(concurrency=8)) is Yardstick.TOKENS
    assert "too few" in str(Yardstick.MEAN)


def test_a_short_mean_with_a_long_tail_does_not_win() -> None:
    tail = open_run([0.1] * 850 + [0.9] * 150)
    even = open_run([0.3] * 1000)
    assert score(tail, OPEN, Yardstick.MEAN) > score(even, OPEN, Yardstick.MEAN)
    by = yardstick([summarise(tail), summarise(even)], OPEN)
    assert score(even, OPEN, by) == pytest.approx(-0.3, rel=0.01)
    assert score(tail, OPEN, by) == pytest.approx(-0.9, rel=0.01)


def test_errors_lose_and_do_not_choose_the_yardstick() -> None:
    good = open_run([0.3] * 1000)
    bad_run = open_run([0.1] * 20)
    refused = dataclasses.replace(bad_run.samples[0], reply=ReplySample(code="RESOURCE_EXHAUSTED"))
    bad = dataclasses.replace(bad_run, samples=[refused, *bad_run.samples[1:]])
    by = yardstick([summarise(good), summarise(bad)], OPEN)
    assert by is Yardstick.P99
    assert score(bad, OPEN, by) == float("-inf") < score(good, OPEN, by)


@pytest.mark.parametrize("num_rows", [1, 8, 64])
def test_closed_loops_are_scored_alike_however_many_are_answered_at_once(num_rows: int) -> None:
    """64 users, a batch of so many rows after another, 10 tokens each, 64 answers a second.

    Who is counted by the answers within these two seconds has 64, or twice that, by luck.
    """
    load = Load(concurrency=64)
    plan = LoadPlan("server:1", concurrency=64, duration=2.0, warmup=1.0)
    ends = [math.ceil((number + 1) / num_rows) * num_rows / 64 for number in range(256)]
    begins = [0.0] * 64 + ends[:-64]
    samples = [
        sample(number, begin, end - begin, target_tokens=10)
        for number, (begin, end) in enumerate(zip(begins, ends, strict=True))
    ]
    run = Run(plan=plan, samples=samples, lags=[], seconds=3.0, num_scheduled=None)
    assert score(run, load, Yardstick.TOKENS) == pytest.approx(640, rel=0.02)


def test_who_answers_nothing_has_no_score() -> None:
    plan = LoadPlan("server:1", concurrency=64, duration=2.0, warmup=1.0)
    run = Run(plan=plan, samples=[], lags=[], seconds=3.0, num_scheduled=None)
    assert score(run, Load(concurrency=64), Yardstick.TOKENS) == 0.0


def test_rounds_of_the_engine_s_sweep_are_long_enough_to_tell() -> None:
    rounds = ENGINE.sweep.rounds
    last = len(rounds) - 1
    rate = 4.0
    assert ENGINE.round_seconds(last, OPEN, rate) * 0.8 * rate > 110
    assert ENGINE.round_seconds(0, OPEN, rate) * 0.8 * rate >= 50
    assert ENGINE.round_seconds(0, OPEN, 1e6) == rounds[0].seconds
    assert ENGINE.round_seconds(last, OPEN, 1e6) == rounds[last].seconds
    assert ENGINE.round_seconds(last, Load(concurrency=8), rate) == rounds[last].seconds
    # Longer than a batch of 64 takes, so that each setting has answers.
    assert all(one.seconds + one.warmup >= 7.0 for one in rounds)


class Broken(Suite):
    """One load can't be measured, and there is no capacity of beams."""

    def measure(self, load: Load, rate: float) -> None:
        if load.concurrency == 16:
            raise LoadError("it did not start")
        (self.output / f"{self.name}-{load.name}").touch()


def test_what_breaks_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rate(suite: Suite, load: Load) -> float:
        if load.share is not None and load.beam_size > 1:
            raise LoadError("no answer")
        return 1.0

    monkeypatch.setattr(suite_run, "Suite", Broken)
    monkeypatch.setattr(suite_run, "reference_rate", rate)
    made = Artifacts("base", "int8", tmp_path, tmp_path, tmp_path)
    monkeypatch.setattr(Models, "prepare", lambda *_: made)
    plan = dataclasses.replace(FULL, precisions=("int8",))
    problems = run_measurements(measurements(plan, tmp_path, Models(checkpoint=None)))
    done = {path.name for path in tmp_path.iterdir()}
    lost = {load for load in plan.loads if load.concurrency == 16}
    lost |= {load for load in plan.loads if load.share is not None and load.beam_size > 1}
    assert done == {f"base-int8-{load.name}" for load in plan.loads if load not in lost}
    for load in lost:
        assert any(load.name in problem for problem in problems)
    assert any("no answer" in problem for problem in problems)


def test_ctrl_c_is_no_problem_to_pass_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise Interrupted

    monkeypatch.setattr(Suite, "measure", interrupt)
    made = Artifacts("base", "int8", tmp_path, tmp_path, tmp_path)
    monkeypatch.setattr(Models, "prepare", lambda *_: made)
    with pytest.raises(Interrupted):
        run_measurements(measurements(FULL, tmp_path, Models(checkpoint=None)))

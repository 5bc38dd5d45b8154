"""The benchmarks from end to end, with a tiny model and so short that figures mean nothing."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import recompute
from bench.benchmark import run_measurements
from bench.engine import run as engine
from bench.engine.bare_loop import BareLoop
from bench.engine.in_process import ClosedLoop, measure
from bench.engine.run import SMOKE, choose
from bench.load.source import read_texts
from bench.server_process import environment
from bench.suite import agreement
from bench.suite import engine_table as table
from bench.suite.artifacts import SHIPPED_TEXTS, Artifacts, Models, digest, prepare_speed_model
from bench.suite.cells import read_runs
from bench.suite.points import SMOKE as SUITE_SMOKE
from bench.suite.points import Load
from bench.suite.reference import reference_rate
from bench.suite.run import measurements
from bench.suite.suite import Suite
from bench.suite.sweep import Round, Sweep
from model.bundle.bundle import Bundle
from tests.factories import SENTENCES, tiny_bundle
from tests.integration.servers import needs_two_cores
from tests.robustness.soak import report
from tests.robustness.soak.run import SoakPlan, soak

pytestmark = pytest.mark.benchmarks

SHORT = Round(0.3, 0.1, 1)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the models of all tests in this file, which are made once."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def small(work: Path) -> Artifacts:
    """With short texts: a busy machine answers enough of them in a second."""
    made = prepare_speed_model(work, "int8", "small")
    shortest = sorted(read_texts(made.texts), key=len)[:50]
    made.texts.write_text("\n".join(shortest) + "\n", encoding="utf-8")
    return made


def test_a_suite_sweeps_measures_and_measures_nothing_twice(
    small: Artifacts, tmp_path: Path
) -> None:
    plan = dataclasses.replace(
        SUITE_SMOKE,
        closed=(2,),
        shares=(0.5,),
        reference="throughput",
        repetitions=1,
        seconds=0.3,
        open_seconds=0.3,
        warmup=0.1,
        sweep=Sweep(SUITE_SMOKE.sweep.settings[:2], (SHORT,)),
    )
    suite = Suite(plan, tmp_path, small)
    load = Load(concurrency=2, beam_size=2)
    suite.measure(load, 0.0)
    assert reference_rate(suite, Load(share=0.5, beam_size=2)) > 0.0
    files = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("samples.jsonl.gz")}
    sweeps = list(tmp_path.glob("sweep/*/*/sweep.json"))
    assert [file.parent.name for file in sweeps] == ["closed-2-beam2"]
    suite.measure(load, 0.0)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("samples.jsonl.gz")} == files
    runs = read_runs(tmp_path)["small int8"]
    for system in ("ctranslate2", "dragoman"):
        (results,) = runs["closed-2-beam2", system]
        assert results.run.plan.beam_size == 2
        assert not results.summary().errors
    recompute.main(tmp_path)
    assert "closed-loop throughput with 2 users" in (tmp_path / "report.md").read_text()


@pytest.mark.slow
def test_the_full_plan_in_miniature_measures_all_and_nothing_twice(
    work: Path, small: Artifacts, tmp_path: Path
) -> None:
    plan = dataclasses.replace(
        SUITE_SMOKE,
        precisions=("int8",),
        beam_sizes=(1,),
        closed=(1,),
        shares=(0.8,),
        repetitions=1,
        seconds=0.5,
        open_seconds=0.3,
        slo_percentiles=(50.0,),
        sweep=Sweep(SUITE_SMOKE.sweep.settings[:2], (SHORT,)),
    )
    models = Models(work, "small", checkpoint=None)
    assert run_measurements(measurements(plan, tmp_path, models)) == []
    runs = read_runs(tmp_path)["small int8"]
    counts = {key: len(results) for key, results in runs.items()}
    # On a busy machine the median of a single user takes further runs.
    assert counts.pop(("closed-1", "ctranslate2")) >= 1
    assert counts == {
        (load.name, system): 1
        for load in plan.loads
        for system in plan.systems
        if (load.name, system) != ("closed-1", "ctranslate2")
    }
    files = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("samples.jsonl.gz")}
    assert run_measurements(measurements(plan, tmp_path, models)) == []
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("samples.jsonl.gz")} == files


def test_the_engine_benchmark_measures_its_lines(
    work: Path, small: Artifacts, tmp_path: Path
) -> None:
    models = Models(work, "small")
    plan = dataclasses.replace(SMOKE, seconds=0.5, warmup=0.1)
    # Measured in the full plan, above.
    agreed = tmp_path / "runs" / "small-int8" / agreement.file_name(1)
    agreement.write(agreed, agreement.Agreement(agreement.NUM_TEXTS, []))
    parts = choose(engine.measurements(plan, tmp_path, models), "closed-64,in-process")
    assert run_measurements(parts) == []
    # On a busy machine half a second may bring no answer: a ratio of two is not sure, but these.
    made = table.rows(tmp_path, read_runs(tmp_path))
    rows = {row.name: row for row in made}
    assert len(rows) == len(made) == 20, "each line has a name of its own"
    (loop,) = (row for name, row in rows.items() if "bare loop" in name)
    assert loop.ratio is not None
    (memory,) = (row for name, row in rows.items() if "memory" in name)
    assert memory.ratio is not None


async def test_the_engine_in_process(small: Artifacts) -> None:
    bundle = Bundle.load(small.bundle)
    texts = read_texts(small.texts)
    found = await measure(bundle, texts, ClosedLoop(4, seconds=1.5, warmup=0.1), blocks=1)
    assert set(found["steps"]) == {"1", "8", "64"}
    for rows, blocks in found["steps"].items():
        (ours,), (bare,) = blocks["engine"], blocks["bare"]
        # A hundred tokens and their end; those are left out in which others still joined. 64 rows
        # are encoded in several batches, so that they join during many steps.
        assert (1 if rows == "64" else 80) <= ours["steps"] == bare["steps"] <= 100
        assert ours["seconds"] > 0 < bare["seconds"]
    assert found["closed"]["tokens"] > 0


def test_the_bare_loop_runs_the_graph_on_its_own_memory(small: Artifacts) -> None:
    loop = BareLoop(Bundle.load(small.bundle), 2, source_length=5, max_source=16, max_target=16)
    caches = {name: array for name, array in loop.arrays.items() if name.startswith("past_")}
    assert not any(array.any() for array in caches.values())
    loop.run(range(3))
    for array in caches.values():
        assert array[:, :, :3].any(axis=(1, 3)).all()
        assert not array[:, :, 3:].any()
    assert np.isfinite(loop.arrays["top_logits"]).all()


def test_a_soak_leaves_nothing_behind(small: Artifacts, tmp_path: Path) -> None:
    found = soak(
        tmp_path, small, SoakPlan(20.0, seconds=2.0, num_fills=1, num_pairs=1), {"name": "short"}
    )
    assert found.left_over == {}
    assert len(found.pairs) == 1
    assert len(found.slices) == 20
    assert sum(one.num_ok for one in found.slices) > 0
    assert found.num_requests > 0
    assert (tmp_path / "report.md").read_text() == report.render(found)


def test_a_model_is_made_anew_when_what_it_was_made_from_has_changed(
    small: Artifacts, work: Path
) -> None:
    made_at = small.bundle.stat().st_mtime_ns
    prepare_speed_model(work, "int8", "small")
    assert small.bundle.stat().st_mtime_ns == made_at
    note = small.bundle.with_suffix(".made")
    note.write_text("another exporter")
    prepare_speed_model(work, "int8", "small")
    assert note.read_text() == digest()
    assert small.bundle.stat().st_mtime_ns > made_at


def test_the_shipped_texts_are_sentences_of_many_lengths() -> None:
    texts = read_texts(SHIPPED_TEXTS)
    words = sorted(len(text.split()) for text in texts)
    assert len(set(texts)) == len(texts) > 150
    assert words[0] <= 3
    assert words[-1] >= 25


@needs_two_cores
def test_model_processes_are_measured_and_more_cores_predicted(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", precision="int8")
    texts = tmp_path / "texts"
    texts.write_text("\n".join(SENTENCES), encoding="utf-8")
    arguments = ["--bundle", bundle.path, "--texts", texts, "--output", tmp_path / "report"]
    arguments += ["--seconds", "0.5", "--rounds", "1", "--simulation", "0.2"]
    subprocess.run(
        [sys.executable, "-m", "bench.engine.scale", *map(str, arguments)],
        check=True,
        env=environment(),
    )
    summary = recompute.read_summary(tmp_path / "report")
    assert {1, 2} <= {one["processes"] for one in summary["measured"]}
    assert {4, 8, 16, 32} == {one["cores"] for one in summary["simulated"]}
    assert "first bottleneck" in (tmp_path / "report" / recompute.REPORT_FILE).read_text()

"""The watchdog detects a model without progress, and only such a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.submission import submit, submit_many
from service.domain.plan import RunnerLimits
from service.domain.requests import GenerationRequest, ScoringRequest
from service.engine.engine import Engine, EngineConfig
from service.engine.interface import EngineProgress
from service.engine.watchdog import StallDetector, Watchdog
from service.errors import UnavailableError
from tests.fake_lanes import FakeLanes
from tests.fake_runner import FakeRunner
from tests.fake_scorer import FakeScorer
from tests.unit.service.engine.served_engine import settled

EOS = 3
LIMITS = RunnerLimits(
    max_rows=4, max_source_positions=64, max_target_positions=64, top_k=4, vocab_size=512
)
STALL, HANG = 10.0, 60.0

# From one check to the next, in time; and too late, as after a suspension.
on_time = st.floats(0.01, 2.0)
late = st.floats(2.01, 1e6)


def detector() -> StallDetector:
    made = StallDetector(STALL, HANG)
    assert made.interval == 1.0
    return made


class Time:
    """Virtual time, in which a detector checks."""

    def __init__(self, detector: StallDetector, start: float = 1e6) -> None:
        self.detector = detector
        self.now = start

    def check(self, progress: EngineProgress | None, after: float = 1.0) -> StallDetector:
        self.now += after
        self.detector.check(progress, self.now)
        return self.detector


@given(st.lists(on_time, min_size=1, max_size=200), st.floats(0.0, 100.0))
def test_silence_is_a_stall_after_the_limit_and_a_hang_after_the_next(
    steps: list[float], expected: float
) -> None:
    time, progress = Time(detector()), EngineProgress(7, expected)
    limit, began = max(STALL, 4 * expected), time.now + 1.0
    time.check(progress)
    for step in steps:
        made = time.check(progress, step)
        silent = pytest.approx(time.now - began)
        assert made.silent_seconds == silent
        assert made.is_stalled == (made.silent_seconds >= limit)
        assert made.is_hung == (made.silent_seconds >= limit + HANG)
    if made.is_stalled:
        assert not time.check(EngineProgress(8, expected)).is_stalled


@given(st.lists(st.tuples(st.one_of(on_time, late), st.integers(0, 2)), max_size=300))
def test_a_model_that_reports_in_time_never_stalls(checks: list[tuple[float, int]]) -> None:
    """This holds for irregular checks, and for a model that often has no work."""
    time, num_reports, silent = Time(detector()), 0, 0.0
    for elapsed, num_new in checks:
        silent += elapsed
        if num_new or silent >= STALL:
            num_reports, silent = num_reports + max(1, num_new), 0.0
        progress = None if num_new == 2 else EngineProgress(num_reports)
        assert not time.check(progress, elapsed).is_stalled


@given(st.lists(late, max_size=50), st.integers(0, 9))
def test_time_in_which_the_watchdog_did_not_run_is_no_evidence(
    suspensions: list[float], num_looks: int
) -> None:
    time = Time(detector())
    for elapsed in (1.0, *[1.0] * num_looks, *suspensions):
        assert not time.check(EngineProgress(1), elapsed).is_stalled


@given(st.lists(st.one_of(on_time, late), max_size=50))
def test_a_model_without_work_never_stalls_and_its_first_step_has_all_its_time(
    idle: list[float],
) -> None:
    time = Time(detector())
    for elapsed in idle:
        assert not time.check(None, elapsed).is_stalled
    for _ in range(int(STALL)):
        assert not time.check(EngineProgress(1)).is_stalled
    assert time.check(EngineProgress(1)).is_stalled


def test_a_hang_can_be_left_to_others() -> None:
    time = Time(StallDetector(STALL, 0.0))
    for _ in range(10_000):
        assert not time.check(EngineProgress(1)).is_hung
    assert time.detector.is_stalled


def test_a_short_limit_is_looked_at_often_enough() -> None:
    assert StallDetector(0.1, HANG).interval == 0.025


# --- with engines --------------------------------------------------------------------------------


class Watching:
    """Watches one engine, in virtual time."""

    def __init__(self, engine: Engine) -> None:
        self.changes: list[tuple[str, bool]] = []
        self.watchdog = Watchdog(
            {"a-model": engine}, STALL, HANG, lambda *change: self.changes.append(change)
        )
        self._now = 0.0

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self._now += 1.0
            self.watchdog.check(self._now)


@asynccontextmanager
async def watched(
    runner: FakeRunner | FakeLanes,
    config: EngineConfig | None = None,
    scorer: FakeScorer | None = None,
) -> AsyncIterator[tuple[Engine, Watching]]:
    """An engine on a runner, and what watches it."""
    engine = Engine.of_runner(runner, config, scorer=scorer)
    await engine.start()
    yield engine, Watching(engine)
    await engine.stop()


@pytest.mark.parametrize("cancels", [False, True])
async def test_a_step_that_hangs_stalls_the_model_until_it_ends(
    cancels: bool, caplog: pytest.LogCaptureFixture
) -> None:
    runner = FakeRunner(LIMITS)
    async with watched(runner) as (engine, watching):
        watching.pass_time(10 * STALL)  # idle
        runner.hold()
        generation = submit(engine, GenerationRequest((10, 11, EOS)))
        await asyncio.to_thread(runner.wait_until_blocked)
        if cancels:  # a client that gives up does not hide the hang
            generation.cancel()
        watching.pass_time(STALL)
        assert (watching.changes, watching.watchdog.stalled) == ([], set())
        watching.pass_time(1)
        assert (watching.changes, watching.watchdog.stalled) == ([("a-model", True)], {"a-model"})
        watching.pass_time(HANG - 2)
        runner.release()
        result = await generation.result()
        watching.pass_time(1)
        assert (watching.changes[1:], watching.watchdog.stalled) == ([("a-model", False)], set())
        assert not engine.has_failed
        if not cancels:
            assert result.token_ids == runner.predict((10, 11, EOS), 64)[0]
        assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


async def test_a_step_that_hangs_for_too_long_fails_the_engine(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner = FakeRunner(LIMITS)
    async with watched(runner) as (engine, watching):
        runner.hold()
        inside = submit_many(engine, [GenerationRequest((10 + i, EOS)) for i in range(9)])
        await asyncio.to_thread(runner.wait_until_blocked)
        watching.pass_time(STALL + HANG)
        assert not engine.has_failed
        watching.pass_time(1)
        assert await engine.wait_until_ended()
        for generation in inside:
            assert isinstance((await generation.result()).error, UnavailableError)
        watching.pass_time(10)  # nothing is left to do, and it is not well again
        assert (watching.changes, watching.watchdog.stalled) == ([("a-model", True)], {"a-model"})
        assert "hangs" in caplog.text
        runner.release()


async def test_a_score_that_hangs_counts_like_a_step() -> None:
    scorer = FakeScorer()
    async with watched(FakeRunner(LIMITS), scorer=scorer) as (engine, watching):
        await engine.prepare_scoring()
        scorer.may_score.clear()
        generation = submit(engine, ScoringRequest((10, EOS), target_ids=(11, EOS)))
        await asyncio.to_thread(scorer.is_scoring.wait)
        watching.pass_time(STALL + 1)
        assert watching.watchdog.stalled
        scorer.may_score.set()
        await generation.result()
        watching.pass_time(1)
        assert not watching.watchdog.stalled


async def test_with_steps_that_go_on_nothing_stalls_however_slow_they_are() -> None:
    """Each report restarts the time, also for one translation with many steps."""
    runner = FakeRunner(LIMITS, script=lambda _: range(10, 70))
    async with watched(runner) as (engine, watching):
        runner.hold()
        generation = submit(engine, GenerationRequest((10, EOS)))
        stream = aiter(generation)  # so that every step is reported
        for _ in range(20):
            await asyncio.to_thread(runner.wait_until_blocked)
            watching.pass_time(STALL)
            runner.allow()
            await anext(stream)
        assert watching.changes == []
        runner.release()
        await generation.result()


@pytest.mark.parametrize("what", ["a step", "an encode"])
async def test_a_hang_in_lanes_is_noticed(what: str) -> None:
    lanes = FakeLanes(LIMITS)
    async with watched(lanes, EngineConfig(turn_rows_per_lane=0)) as (engine, watching):
        if what == "a step":
            lanes.hold()
        else:
            lanes.may_encode.clear()
        generation = submit(engine, GenerationRequest((10, EOS)))
        await asyncio.to_thread(
            lanes.is_encoding.wait if what == "an encode" else lanes.runners[0].wait_until_blocked
        )
        await settled()
        watching.pass_time(STALL + 1)
        assert watching.watchdog.stalled
        lanes.release()
        await generation.result()
        watching.pass_time(1)
        assert not watching.watchdog.stalled


async def test_what_is_expected_of_a_model_follows_its_pace() -> None:
    """A model whose steps take seconds has minutes for the steps that are reported together."""
    now = 0.0

    class SlowRunner(FakeRunner):
        def execute(self, plan):  # type: ignore[no-untyped-def]
            nonlocal now
            now += 2.0
            return super().execute(plan)

    engine = Engine.of_runner(SlowRunner(LIMITS), clock=lambda: now)
    await engine.start()
    first = submit(engine, GenerationRequest((10, EOS)))
    assert engine.pulse() == EngineProgress(0, 0.0)
    await first.result()
    await settled()
    assert engine.pulse() is None
    await submit(engine, GenerationRequest((12, 13, EOS))).result()
    submit(engine, GenerationRequest((10, EOS)))
    progress = engine.pulse()
    assert progress is not None
    assert progress.num_reports >= 2
    # 16 steps of one row, and 128 positions
    assert progress.expected_seconds == pytest.approx((16 + 128) * 2.0)
    await engine.stop()


async def test_before_anything_was_seen_a_trial_says_how_slow_a_model_is() -> None:
    runner = FakeRunner(LIMITS)
    runner.hold()
    async with watched(runner, EngineConfig(step_seconds=0.5)) as (engine, watching):
        submit(engine, GenerationRequest((10, EOS)))
        assert engine.pulse() == EngineProgress(0, 128 * 0.5)
        watching.pass_time(4 * 64)
        assert not watching.watchdog.stalled
        watching.pass_time(1)
        assert watching.watchdog.stalled
        runner.release()

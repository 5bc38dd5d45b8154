"""Scheduling ahead changes the times of events, but no answer."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest

from service.batching.async_loop import AsyncLoop
from service.batching.async_scheduler import JOIN_EVERY, AsyncScheduler
from service.batching.config import EngineConfig
from service.batching.events import Events
from service.batching.lane_loop import LaneLoop
from service.batching.records import EngineRequest, Finished
from service.batching.step_loop import StepLoop
from service.batching.step_loops import step_loop
from service.domain.plan import RunnerLimits, ScoreItem, StepOutput, StepPlan, TargetScore
from service.domain.requests import FinishReason, GenerationResult, ScoringRequest, SearchOptions
from service.errors import RequestCancelledError
from tests.fake_runner import FakeRunner, babble
from tests.fake_scorer import FakeScorer
from tests.searches import EOS, entries_of, is_waiting, rows_of, search, submitted

LIMITS = RunnerLimits(
    max_rows=6, max_source_positions=16, max_target_positions=16, top_k=8, vocab_size=512
)
FREE = 0.0  # a time at which no deadline has passed


class DeviceLike:
    """A `FakeRunner`, which checks each plan, with a device's handling of chained rows.

    A row that has ended keeps its state, and one at its last position stays there.
    """

    def __init__(self, fake: FakeRunner, depth: int) -> None:
        self.fake = fake
        self.limits = fake.limits
        self.depth = depth
        self.num_chained = 0
        self._tokens = np.zeros(LIMITS.max_rows, np.int64)
        self._positions = np.zeros(LIMITS.max_rows, np.int32)

    def submit(self, plan: StepPlan) -> Future[StepOutput]:
        future: Future[StepOutput] = Future()
        try:
            future.set_result(self.execute(plan))
        except RuntimeError as exc:
            future.set_exception(exc)
        return future

    def execute(self, plan: StepPlan) -> StepOutput:
        chained = plan.chained if plan.chained is not None else np.zeros(plan.num_rows, np.bool_)
        self.num_chained += int(chained.sum())
        rows = np.arange(plan.num_rows)
        token_ids = np.where(chained, self._tokens[rows], plan.token_ids)
        last = LIMITS.max_target_positions - 1
        positions = np.where(chained, np.minimum(self._positions[rows], last), plan.positions)
        token_ids[positions == 0] = 2  # the fake insists; a device's ended row may hold there, too
        for row in rows[chained]:
            held = self.fake._rows[row]
            held.tokens = held.tokens[: positions[row]]
        output = self.fake.execute(
            replace(plan, token_ids=token_ids, positions=positions.astype(np.int32), chained=None)
        )
        best = output.top_ids[:, 0]
        self._tokens[rows] = best
        self._positions[rows] = positions + (best != EOS)
        return output

    def follow_up(self) -> StepOutput:
        return self.fake.follow_up()

    def close(self) -> None:
        self.fake.close()


class InFlightScorer(FakeScorer):
    """Records the number of steps in flight when it begins."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.in_flight: list[int] = []
        self._loop = loop
        self.prepare()

    def score(self, items: Sequence[ScoreItem]) -> list[TargetScore]:
        self.in_flight.append(len(self._loop.loop._in_flight))
        return super().score(items)


class Loop:
    """An `AsyncLoop` that iterates on this thread, with a clock that stands still."""

    def __init__(self, depth: int, many_rows: int = 64) -> None:
        self.runner = DeviceLike(FakeRunner(LIMITS, script=babble), depth)
        self.scheduler = AsyncScheduler(
            LIMITS, bos_id=2, eos_id=EOS, encode_token_budget=40, many_rows=many_rows
        )
        self.scorer = InFlightScorer(self)
        self.loop = AsyncLoop(self.runner, self.scheduler, lambda: FREE, self, self.scorer)
        self.results: dict[int, GenerationResult] = {}
        self.streamed: dict[int, list[int]] = {}

    def on_events(self, events: Events) -> None:
        for request_id, tokens in events.streamed:
            self.streamed.setdefault(request_id, []).extend(tokens)
        self.end(events.finished)

    def on_end(self, failed: bool) -> None:
        raise AssertionError("it was not started")

    def end(self, all_finished: Iterable[Finished]) -> None:
        for finished in all_finished:
            assert finished.id not in self.results, "answered twice"
            self.results[finished.id] = finished.result

    @property
    def is_busy(self) -> bool:
        """Whether a step is in flight."""
        return bool(self.loop._in_flight)

    def iterate(self) -> None:
        self.loop.iterate()

    def run(self) -> None:
        for _ in range(2000):
            if self.scheduler.is_idle and not self.is_busy:
                return
            self.iterate()
        raise AssertionError("a request runs for ever")


def jobs_at_random(chance: random.Random, count: int, share_of_beams: float) -> list[EngineRequest]:
    jobs = []
    for _ in range(count):
        source = [chance.randrange(4, 60) for _ in range(chance.randint(1, 8))]
        beam_size = 3 if chance.random() < share_of_beams else 1
        options = SearchOptions(beam_size=beam_size)
        jobs.append(search(source, options, chance.choice([1, 2, 5, 12, 16])))
    return jobs


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("share_of_beams", [0.0, 0.2])
@pytest.mark.parametrize("many_rows", [64, 3])
def test_everybody_gets_what_greedy_search_gives(
    depth: int, share_of_beams: float, many_rows: int
) -> None:
    chained = 0
    for seed in range(8):
        chance = random.Random(seed)
        loop = Loop(depth, many_rows)
        jobs = jobs_at_random(chance, 40, share_of_beams)
        waiting = list(jobs)
        cancelled: set[EngineRequest] = set()
        while waiting:
            for _ in range(chance.randint(0, 3)):
                if waiting:
                    job = waiting.pop()
                    loop.scheduler.add([job])
                    if job.request.num_rows == 1 and chance.random() < 0.3:
                        loop.streamed[job.id] = loop.scheduler.stream(job.id)
            if chance.random() < 0.1:
                victim = chance.choice(jobs)
                if victim not in waiting and victim.id in entries_of(loop.scheduler):
                    error = RequestCancelledError("enough")
                    loop.end(loop.scheduler.cancel(victim.id, error, FREE))
                    cancelled.add(victim)
            loop.iterate()
        loop.run()
        chained += loop.runner.num_chained
        assert set(loop.results) == {job.id for job in jobs}
        for job in jobs:
            result = loop.results[job.id]
            if job.request.num_rows > 1:
                continue
            expected, reason = loop.runner.fake.predict(job.request.source_ids, job.max_new_tokens)
            if job in cancelled and result.finish_reason is FinishReason.CANCELLED:
                assert result.token_ids == expected[: len(result.token_ids)]
                continue
            assert (result.token_ids, result.finish_reason) == (expected, reason)
            if job.id in loop.streamed:
                assert loop.streamed[job.id] == expected
    assert (chained > 0) == (depth > 1)


@pytest.mark.parametrize(("depth", "kind"), [(1, LaneLoop), (2, AsyncLoop)])
def test_with_one_step_in_flight_steps_can_follow_each_other_at_once(
    depth: int, kind: type[StepLoop]
) -> None:
    """Only `LaneLoop` does this; there is no gain from scheduling ahead."""
    loop = Loop(depth)
    made = step_loop(loop.runner, EngineConfig(), lambda: FREE, loop, None)
    assert type(made) is kind


def test_a_beam_is_looked_at_at_every_step() -> None:
    loop = Loop(depth=3)
    loop.scheduler.add([search([5, 6], SearchOptions(beam_size=2), 6), search([7], None, 6)])
    loop.iterate()
    assert loop.runner.num_chained == 0
    assert not loop.is_busy
    loop.run()
    assert all(result.error is None for result in loop.results.values())


def test_a_new_request_joins_at_most_as_late_as_the_depth() -> None:
    loop = Loop(depth=3)
    loop.scheduler.add([search([9, 9, 9, 9], None, 16)])
    loop.iterate()  # three steps submitted, one of them taken in
    late = search([8, 8], None, 16)
    loop.scheduler.add([late])
    num_plans = len(loop.runner.fake.plans)
    loop.iterate()
    assert rows_of(loop.scheduler, late), "it joins with the next plan"
    assert len(loop.runner.fake.plans) == num_plans + 1
    loop.run()


def test_among_many_rows_new_requests_join_together() -> None:
    """They join at most at every fourth step; after some time without any, one joins at once."""
    loop = Loop(depth=2, many_rows=2)
    loop.scheduler.add([search([9, 9, 9, n], None, 16) for n in range(10, 12)])
    loop.iterate()
    late = [search([8, 8, 8, n], None, 16) for n in range(10, 13)]
    for job in late:  # one comes at each step
        loop.scheduler.add([job])
        loop.iterate()
    plans = loop.runner.fake.plans
    joined = [number for number, plan in enumerate(plans) if plan.encodes]
    assert len(plans) - 1 <= JOIN_EVERY
    while any(is_waiting(loop.scheduler, job) for job in late):
        loop.iterate()
    joined = [number for number, plan in enumerate(plans) if plan.encodes]
    assert len(joined) <= 3
    assert all(after - before >= JOIN_EVERY for before, after in itertools.pairwise(joined))
    loop.run()
    assert all(result.error is None for result in loop.results.values())


def score() -> EngineRequest:
    return submitted(ScoringRequest((*[10] * 15, EOS), target_ids=(*[11] * 15, EOS)))


def test_all_steps_are_submitted_before_a_score_begins() -> None:
    loop = Loop(depth=3)
    loop.scheduler.add([search([9, 9, 9, 9], None, 16)])
    loop.iterate()
    loop.scheduler.add([score()])
    loop.run()
    assert loop.scorer.in_flight == [3]


def test_no_score_begins_beside_a_step_whose_rows_were_dropped() -> None:
    """Without rows, scores would have the whole budget; but the step is still in flight."""
    loop = Loop(depth=2)
    row = search([9, 9, 9, 9], None, 16)
    loop.scheduler.add([row])
    loop.iterate()
    loop.scheduler.add([score(), score()])
    while not loop.scorer.items:  # the first one is more than scores' part: the other waits
        loop.iterate()
    assert loop.is_busy
    loop.scheduler.cancel(row.id, RequestCancelledError("enough"), FREE)
    assert loop.scheduler.can_schedule()
    schedule = loop.scheduler.schedule(FREE)
    assert (schedule.plan, schedule.scoring) == (None, [])
    loop.run()
    assert len(loop.scorer.items) == 2


def test_a_failed_step_fails_those_who_ran_and_nobody_after_them() -> None:
    loop = Loop(depth=2)
    first = [search([5, 6, 7, n], None, 16) for n in range(10, 16)]
    second = [search([5, 6, 8, n], None, 16) for n in range(10, 16)]
    loop.scheduler.add(first)
    loop.iterate()
    loop.scheduler.add(second)
    loop.runner.fake.fail_next(RuntimeError("broken"))
    loop.run()
    failed = [number for number, result in loop.results.items() if result.error is not None]
    assert failed
    assert set(failed) <= {job.id for job in first}
    for job in second:
        expected, _ = loop.runner.fake.predict(job.request.source_ids, job.max_new_tokens)
        assert loop.results[job.id].token_ids == expected

"""Beam search in the scheduler equals the reference search, and copies no more than necessary."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.evaluation.search import BeamOptions, ReferenceBeam
from model.evaluation.search import ReferenceHypothesis as Expected
from service.domain.requests import (
    FinishReason,
    GenerationResult,
    SearchOptions,
)
from service.errors import RequestCancelledError
from tests.fake_runner import moody
from tests.searches import EOS, moody_runner, run_all, search

VOCAB_SIZE = 24


def reference(
    source: tuple[int, ...], options: SearchOptions, max_new_tokens: int
) -> list[Expected]:
    """The result of the reference's beam search with the same logits."""
    scores = moody(VOCAB_SIZE)
    fields = dataclasses.asdict(options)
    names = [field.name for field in dataclasses.fields(BeamOptions)]
    beam = ReferenceBeam(BeamOptions(**{name: fields[name] for name in names}), max_new_tokens, EOS)
    while not beam.done:
        ids, log_probs = [], []
        for running in beam.running:
            logits = scores((*source, EOS), running.token_ids)
            best = np.argsort(-logits, kind="stable")[: 2 * options.beam_size]
            log_sum_exp = np.float64(np.float32(np.logaddexp.reduce(logits)))
            ids.append(best.tolist())
            log_probs.append((logits[best].astype(np.float64) - log_sum_exp).tolist())
        beam.advance(ids, log_probs)
    return beam.finished[: options.num_hypotheses]


@st.composite
def beam_options(draw: st.DrawFn, max_beam_size: int = 5) -> SearchOptions:
    beam_size = draw(st.integers(2, max_beam_size))
    return SearchOptions(
        beam_size=beam_size,
        num_hypotheses=draw(st.integers(1, beam_size)),
        length_penalty=draw(st.sampled_from([-0.5, 0.0, 0.6, 1.0, 2.0])),
        length_penalty_kind=draw(st.sampled_from(["power", "gnmt"])),
        early_stopping=draw(st.sampled_from(["heuristic", "first", "never"])),
    )


requests = st.tuples(
    st.lists(st.integers(10, 99), max_size=4).map(tuple), beam_options(), st.integers(1, 24)
)


def check_equal(result: GenerationResult, expected: list[Expected]) -> None:
    """Check that hypotheses are the same, in the same order, bit for bit."""
    assert [
        (tuple(h.token_ids), tuple(h.token_log_probabilities), h.score, h.ended)
        for h in result.hypotheses
    ] == [(e.token_ids, e.log_probs, e.score, e.finished) for e in expected]
    best = expected[0]
    assert result.token_ids == list(best.token_ids)
    assert result.finish_reason is (FinishReason.EOS if best.finished else FinishReason.LENGTH)
    total = 0.0
    for log_prob in best.log_probs:
        total += log_prob
    assert result.log_probability == total


@given(st.lists(requests, min_size=1, max_size=6), st.integers(5, 13))
@settings(max_examples=100)
def test_every_beam_is_the_reference_s_whoever_runs_beside_it(
    wanted: list[tuple[tuple[int, ...], SearchOptions, int]], max_rows: int
) -> None:
    """There are few rows, so that beams wait, join late, and move into rows that come free."""
    scheduler, runner = moody_runner(max_rows)
    jobs = [search(*request) for request in wanted]
    for job in jobs:
        scheduler.add([job])
    results = run_all(scheduler, runner)
    for job, request in zip(jobs, wanted, strict=True):
        check_equal(results[job.id], reference(*request))
    assert scheduler.num_running == 0


def test_greedy_rows_and_beams_share_a_batch() -> None:
    scheduler, runner = moody_runner(9)
    greedy = [search((source,), SearchOptions(), 20) for source in range(10, 15)]
    beams = [search((source,), SearchOptions(beam_size=3), 20) for source in range(20, 23)]
    scheduler.add([*greedy[:2], *beams, *greedy[2:]])
    results = run_all(scheduler, runner)
    assert max(plan.num_rows for plan in runner.plans) == 9
    for job in greedy:
        alone, alone_runner = moody_runner(1)
        again = search(job.request.source_ids[:-1], SearchOptions(), 20)
        alone.add([again])
        assert run_all(alone, alone_runner)[again.id].hypotheses == results[job.id].hypotheses
    for job in beams:
        check_equal(
            results[job.id], reference(job.request.source_ids[:-1], job.request.options, 20)
        )


def test_only_rows_that_changed_parent_are_copied_and_only_where_they_differ() -> None:
    scheduler, runner = moody_runner(4)
    scheduler.add([search((10,), SearchOptions(beam_size=4), 24)])
    run_all(scheduler, runner)
    assert all(not copy.cross for plan in runner.plans for copy in plan.copies)
    assert all(len(plan.copies) < 4 for plan in runner.plans)
    lengths = [copy.stop - copy.start for plan in runner.plans for copy in plan.copies]
    # FakeRunner refuses a copy that keeps a wrong beginning: these are as short as can be.
    assert 0 < sum(lengths) < sum(copy.stop for plan in runner.plans for copy in plan.copies)


def test_a_cancelled_beam_frees_all_its_rows() -> None:
    scheduler, runner = moody_runner(4)
    first = search((10,), SearchOptions(beam_size=4), 24)
    second = search((11,), SearchOptions(beam_size=3), 24)
    scheduler.add([first, second])
    for _ in range(3):
        schedule = scheduler.schedule(0.0)
        assert schedule.plan is not None
        scheduler.update(runner.execute(schedule.plan), 0.0)
    assert (scheduler.num_running, scheduler.num_waiting) == (4, 1)
    scheduler.cancel(first.id, RequestCancelledError("no more"), 0.0)
    results = run_all(scheduler, runner)
    assert results[first.id].finish_reason is FinishReason.CANCELLED
    assert results[first.id].token_ids
    check_equal(results[second.id], reference((11,), second.request.options, 24))


def test_a_beam_waits_until_all_its_rows_are_free() -> None:
    scheduler, runner = moody_runner(4)
    one = search((10,), SearchOptions(beam_size=3), 24)
    other = search((11,), SearchOptions(beam_size=2), 24)
    scheduler.add([one, other])
    results = run_all(scheduler, runner)
    assert max(plan.num_rows for plan in runner.plans) == 3
    assert set(results) == {one.id, other.id}


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_the_step_returns_what_the_widest_search_needs(beam_size: int) -> None:
    scheduler, runner = moody_runner(8)
    scheduler.add([search((10,), SearchOptions(), 24)])
    if beam_size > 1:
        scheduler.add([search((11,), SearchOptions(beam_size=beam_size), 2)])
    run_all(scheduler, runner)
    asked = [plan.top_k or 0 for plan in runner.plans]
    assert asked[0] == {1: 1, 2: 4, 5: 16}[beam_size]
    assert asked[-1] == 1  # nothing of it stays

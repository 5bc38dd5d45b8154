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


def test_only_rows_that_changed_parent_are_copied_and_only_where_they_differ() -> None:
    scheduler, runner = moody_runner(4)
    scheduler.add([search((10,), SearchOptions(beam_size=4), 24)])
    run_all(scheduler, runner)
    assert all(not copy.cross for plan in runner.plans for copy in plan.copies)
    assert all(len(plan.copies) < 4 for plan in runner.plans)
    lengths = [copy.stop - copy.start for plan in runner.plans for copy in plan.copies]
    # FakeRunner refuses a copy that keeps a wrong beginning: these are as short as can be.
    assert 0 < sum(lengths) < sum(copy.stop for plan in runner.plans for copy in plan.copies)


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

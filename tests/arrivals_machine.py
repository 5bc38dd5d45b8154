"""Searches that come, go and wait at random, for state machines of every kind of scheduler."""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from service.batching.records import EngineRequest, Finished
from service.domain.requests import (
    FinishReason,
    GenerationResult,
    Hypothesis,
    Priority,
    SearchOptions,
)
from service.domain.sampling import Sampling
from service.errors import RequestCancelledError
from tests.searches import moody_runner, run_all, search

MAX_ROWS = 7
SEARCHES = [
    SearchOptions(),
    SearchOptions(beam_size=2, num_hypotheses=2),
    SearchOptions(beam_size=3, length_penalty=0.6, length_penalty_kind="gnmt"),
    SearchOptions(beam_size=3, num_hypotheses=2, early_stopping="never", repetition_penalty=1.5),
    SearchOptions(beam_size=5, num_hypotheses=5, early_stopping="first"),
    SearchOptions(beam_size=7, no_repeat_ngram_size=2),
    SearchOptions(beam_size=2, prefix_ids=(5, 6, 7)),
    SearchOptions(min_new_tokens=6, suppressed_ids=(4, 9)),
    SearchOptions(sampling=Sampling(seed=3)),
]


@functools.lru_cache(maxsize=4096)
def alone(source: tuple[int, ...], options: SearchOptions, limit: int) -> list[Hypothesis]:
    """The result of the search without other requests."""
    scheduler, runner = moody_runner(options.beam_size)
    job = search(source, options, limit)
    scheduler.add([job])
    return run_all(scheduler, runner)[job.id].hypotheses


class ArrivalsMachine(RuleBasedStateMachine):
    """Clients, priorities, beams, rules, samples, cancellations and deadlines.

    Every job is answered once, with an error or with the same result as alone.

    Attributes:
        scheduler: scheduler under test, set by each machine.
        alive: requests without an answer, with their searches.
        by_id: all requests by id.
    """

    scheduler: Any

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.alive: dict[EngineRequest, tuple[tuple[int, ...], SearchOptions, int]] = {}
        self.by_id: dict[int, EngineRequest] = {}

    @rule(
        source=st.lists(st.integers(10, 20), max_size=3).map(tuple),
        options=st.sampled_from(SEARCHES),
        limit=st.integers(4, 24),
        patience=st.none() | st.integers(0, 20),
        client=st.sampled_from("abc"),
        priority=st.sampled_from(list(Priority)),
    )
    def arrive(
        self,
        source: tuple[int, ...],
        options: SearchOptions,
        limit: int,
        patience: int | None,
        client: str,
        priority: Priority,
    ) -> None:
        job = search(
            source,
            options,
            limit,
            now=self.now,
            deadline=None if patience is None else self.now + patience,
            client=client,
            priority=priority,
        )
        self.alive[job] = (source, options, limit)
        self.by_id[job.id] = job
        self.scheduler.add([job])

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(list(self.alive)))
        self.end(self.scheduler.cancel(job.id, RequestCancelledError("no more"), self.now))

    @rule(seconds=st.integers(1, 5))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    def end(self, all_finished: list[Finished]) -> None:
        for finished in all_finished:
            job = self.by_id[finished.id]
            assert job in self.alive, "answered twice"
            self.check(finished.result, alone(*self.alive.pop(job)))

    def check(self, result: GenerationResult, expected: list[Hypothesis]) -> None:
        if result.finish_reason in (FinishReason.EOS, FinishReason.LENGTH):
            assert result.hypotheses == expected
            assert result.error is None
            assert result.token_ids == expected[0].token_ids
        else:
            assert result.error is not None
            assert len(result.hypotheses) <= max(1, len(expected))

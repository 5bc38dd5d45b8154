"""Searches on a scripted model, without an engine: for tests of the scheduler and its parts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from service.batching.records import EngineRequest, Finished, RequestEntry, RequestState
from service.batching.scheduler import Scheduler
from service.domain.plan import ModelRunner, RunnerLimits, StepOutput, StepPlan
from service.domain.requests import (
    GenerationRequest,
    GenerationResult,
    Priority,
    SearchOptions,
)
from tests.fake_runner import FakeRunner, moody

EOS = 3


_ids = itertools.count(1)


def submitted(
    request: GenerationRequest, max_new_tokens: int = 24, now: float = 0.0
) -> EngineRequest:
    """A request in the form that the engine submits, with a new id."""
    return EngineRequest(next(_ids), request, max_new_tokens, now)


def entries_of(scheduler: Scheduler) -> dict[int, RequestEntry]:
    """The scheduler's records of the requests that have not finished, by id."""
    return scheduler._entries


def rows_of(scheduler: Scheduler, request: EngineRequest) -> list[int]:
    """The rows of a request; none if it waits or has finished."""
    entry = entries_of(scheduler).get(request.id)
    return [] if entry is None else entry.rows


def is_waiting(scheduler: Scheduler, request: EngineRequest) -> bool:
    """Whether a request has neither joined the batch nor finished."""
    entry = entries_of(scheduler).get(request.id)
    return entry is not None and entry.state is RequestState.WAITING


def ids(requests: Iterable[EngineRequest | RequestEntry | Finished]) -> list[int]:
    """The ids of requests, records or results."""
    return [request.id for request in requests]


def search(
    source: Iterable[int],
    options: SearchOptions | None = None,
    max_new_tokens: int = 24,
    *,
    now: float = 0.0,
    deadline: float | None = None,
    client: str = "",
    client_id: str = "",
    priority: Priority = Priority.NORMAL,
) -> EngineRequest:
    """A search for the source, to which EOS is added, in the form that the engine submits."""
    request = GenerationRequest(
        (*source, EOS),
        options or SearchOptions(),
        deadline=deadline,
        client=client,
        client_id=client_id,
        priority=priority,
    )
    return submitted(request, max_new_tokens, now)


def moody_runner(
    max_rows: int,
    vocab_size: int = 24,
    max_target_positions: int = 24,
    max_paused_rows: int = 0,
) -> tuple[Scheduler, FakeRunner]:
    """A runner with logits that depend on source and tokens, and a scheduler for it."""
    limits = RunnerLimits(max_rows, 16, max_target_positions, 2, vocab_size, max_paused_rows)
    runner = FakeRunner(limits, scores=moody(vocab_size))
    return Scheduler([limits], bos_id=2, eos_id=EOS, encode_token_budget=100), runner


def outputs_foreseen(
    scheduler: Scheduler, runner: ModelRunner, plan: StepPlan, most: int, now: float
) -> list[StepOutput]:
    """The outputs of the plan's step and of the uninterrupted steps after it, at most `most`."""
    num_steps = min(scheduler.num_uninterrupted_steps(), most)
    outputs = [runner.execute(plan)]
    while len(outputs) < num_steps and scheduler.can_continue(outputs[-1], now):
        plan = plan.followed_by(outputs[-1])
        outputs.append(runner.execute(plan))
    return outputs


def run_all(
    scheduler: Scheduler, runner: ModelRunner, max_steps: int = 1000
) -> dict[int, GenerationResult]:
    """Iterate until no request is left; returns the results by id."""
    results: dict[int, GenerationResult] = {}
    for _ in range(max_steps):
        schedule = scheduler.schedule(0.0)
        ended = list(schedule.dropped)
        if schedule.plan is not None:
            ended += scheduler.update(runner.execute(schedule.plan), 0.0).finished
        for finished in ended:
            assert finished.id not in results, "answered twice"
            results[finished.id] = finished.result
        if scheduler.is_idle:
            return results
    raise AssertionError("a request runs for ever")

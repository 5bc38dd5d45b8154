"""Searches on a scripted model, without an engine: for tests of the scheduler and its parts."""

from __future__ import annotations

from collections.abc import Iterable

from service.batching.jobs import Job
from service.batching.scheduler import Scheduler
from service.decoding.requests import (
    GenerationRequest,
    GenerationResult,
    Priority,
    SearchOptions,
)
from service.runtime.plan import ModelRunner, RunnerLimits, StepOutput, StepPlan
from tests.fake_runner import FakeRunner, moody

EOS = 3


class NoReply:
    """Whom neither scheduler nor queue ever talks to."""

    def push(self, token_ids: list[int]) -> None:
        raise AssertionError("only the engine may use it")

    def finish(self, result: GenerationResult) -> None:
        raise AssertionError("only the engine may use it")


def search_job(
    source: Iterable[int],
    options: SearchOptions | None = None,
    max_new_tokens: int = 24,
    *,
    now: float = 0.0,
    deadline: float | None = None,
    client: str = "",
    priority: Priority = Priority.NORMAL,
) -> Job:
    """A job for the source (to which EOS is added), as the engine would make it."""
    request = GenerationRequest(
        (*source, EOS),
        options or SearchOptions(),
        deadline=deadline,
        client=client,
        priority=priority,
    )
    return Job(request, NoReply(), max_new_tokens, now)


def moody_runner(
    max_rows: int, vocab_size: int = 24, max_target_positions: int = 24
) -> tuple[Scheduler, FakeRunner]:
    """A runner whose logits follow from source and tokens, and a scheduler for it."""
    limits = RunnerLimits(max_rows, 16, max_target_positions, 2, vocab_size)
    runner = FakeRunner(limits, scores=moody(vocab_size))
    return Scheduler(limits, bos_id=2, eos_id=EOS, encode_token_budget=100), runner


def outputs_foreseen(
    scheduler: Scheduler, runner: ModelRunner, plan: StepPlan, most: int, now: float
) -> list[StepOutput]:
    """Of the plan's step and those that are foreseen after it, `most` together."""
    num_foreseen = min(scheduler.num_foreseen, most)
    outputs = [runner.execute(plan)]
    while len(outputs) < num_foreseen and scheduler.goes_on(outputs[-1], now):
        plan = plan.followed_by(outputs[-1])
        outputs.append(runner.execute(plan))
    return outputs


def run_all(
    scheduler: Scheduler, runner: ModelRunner, max_steps: int = 1000
) -> dict[Job, GenerationResult]:
    """Iterate until nobody is left; the result of every job."""
    results: dict[Job, GenerationResult] = {}
    for _ in range(max_steps):
        schedule = scheduler.schedule(0.0)
        ended = list(schedule.dropped)
        if schedule.plan is not None:
            ended += scheduler.update(runner.execute(schedule.plan), 0.0).finished
        for finished in ended:
            assert finished.job not in results, "answered twice"
            results[finished.job] = finished.result
        if scheduler.is_idle:
            return results
    raise AssertionError("somebody runs for ever")

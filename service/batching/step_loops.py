"""The step loop for each kind of runner."""

from __future__ import annotations

from collections.abc import Callable

from service.batching.async_loop import AsyncLoop
from service.batching.async_scheduler import AsyncScheduler
from service.batching.config import EngineConfig
from service.batching.lane_loop import LaneLoop
from service.batching.lane_scheduler import LaneScheduler
from service.batching.plain_loop import PlainLoop
from service.batching.scheduler import Scheduler
from service.batching.step_loop import Listener, StepLoop
from service.runtime.plan import AsyncRunner, LanedRunner, ModelRunner, RunnerLimits, Scorer


def step_loop(
    runner: ModelRunner | LanedRunner,
    config: EngineConfig,
    clock: Callable[[], float],
    listener: Listener,
    scorer: Scorer | None,
) -> StepLoop:
    """A loop that is ready to start.

    Args:
        runner: runs the model; the loop's own from now on, which closes it at its end.
        config: limits and special ids.
        clock: seconds, in which jobs and deadlines are measured.
        listener: is told what happens.
        scorer: scores targets; None if none will come.
    """
    bos_id, eos_id, budget = config.bos_id, config.eos_id, config.encode_token_budget
    if isinstance(runner, LanedRunner):
        lanes = LaneScheduler(
            [lane.alone.limits for lane in runner.lanes],
            bos_id=bos_id,
            eos_id=eos_id,
            encode_token_budget=budget,
            together=config.rows_together * len(runner.lanes),
        )
        return LaneLoop(runner, lanes, clock, listener, scorer)
    if isinstance(runner, AsyncRunner) and runner.depth > 1:
        ahead = AsyncScheduler(
            runner.limits, bos_id=bos_id, eos_id=eos_id, encode_token_budget=budget
        )
        return AsyncLoop(runner, ahead, clock, listener, scorer)
    scheduler = Scheduler(runner.limits, bos_id=bos_id, eos_id=eos_id, encode_token_budget=budget)
    return PlainLoop(runner, scheduler, clock, listener, scorer)


def widest_sequence(runner: ModelRunner | LanedRunner) -> RunnerLimits:
    """What one sequence can have of a runner: a beam has to fit into one lane."""
    if isinstance(runner, LanedRunner):
        return min((lane.alone.limits for lane in runner.lanes), key=_max_rows)
    return runner.limits


def _max_rows(limits: RunnerLimits) -> int:
    return limits.max_rows

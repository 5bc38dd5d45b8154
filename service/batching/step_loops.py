"""Makes the step loop for a runner."""

from __future__ import annotations

from collections.abc import Callable

from service.batching.async_loop import AsyncLoop
from service.batching.async_scheduler import AsyncScheduler
from service.batching.config import EngineConfig
from service.batching.events import Listener
from service.batching.lane_loop import LaneLoop
from service.batching.scheduler import Scheduler
from service.batching.step_loop import StepLoop
from service.domain.plan import (
    AsyncRunner,
    LanedRunner,
    ModelRunner,
    RunnerLimits,
    Scorer,
)

# Most lanes that one thread encodes ahead for. With the included model, an encode takes about half
# as long as the steps of the same text. With more lanes, each lane encodes its own sources.
_MAX_LANES_ENCODED_FOR = 2
# Most rows with which a single lane steps with all threads, and encodes between its steps. A small
# decoder gains little from a second thread, which is better used for encodes.
_SINGLE_LANE_TURN_ROWS = 4


def step_loop(
    runner: ModelRunner | LanedRunner,
    config: EngineConfig,
    clock: Callable[[], float],
    listener: Listener,
    scorer: Scorer | None,
) -> StepLoop:
    """Make a loop that is ready to start.

    Args:
        runner: runs the model. The loop owns it and closes it at its end.
        config: limits and special ids.
        clock: returns the time in seconds, by which deadlines are measured.
        listener: receives the events.
        scorer: scores targets; None if the model can't score.
    """
    bos_id, eos_id, budget = config.bos_id, config.eos_id, config.encode_token_budget
    if isinstance(runner, AsyncRunner) and runner.depth > 1:
        ahead = AsyncScheduler(
            runner.limits, bos_id=bos_id, eos_id=eos_id, encode_token_budget=budget
        )
        return AsyncLoop(runner, ahead, clock, listener, scorer)
    limits, encodes_ahead = [runner.limits], False
    if isinstance(runner, LanedRunner):
        limits = [lane.alone.limits for lane in runner.lanes]
        encodes_ahead = len(limits) <= _MAX_LANES_ENCODED_FOR
    turn_rows = config.turn_rows_per_lane * len(limits)
    if len(limits) == 1:
        turn_rows = min(turn_rows, _SINGLE_LANE_TURN_ROWS)
    scheduler = Scheduler(
        limits,
        bos_id=bos_id,
        eos_id=eos_id,
        encode_token_budget=budget,
        max_turn_rows=turn_rows,
        encodes_ahead=encodes_ahead,
    )
    return LaneLoop(runner, scheduler, clock, listener, scorer)


def widest_sequence(runner: ModelRunner | LanedRunner) -> RunnerLimits:
    """The limits of one sequence: a beam has to fit into one lane."""
    if isinstance(runner, LanedRunner):
        return min((lane.alone.limits for lane in runner.lanes), key=lambda one: one.max_rows)
    return runner.limits

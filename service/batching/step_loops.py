"""The step loop for each kind of runner."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from service.batching.async_loop import AsyncLoop
from service.batching.async_scheduler import AsyncScheduler
from service.batching.config import EngineConfig
from service.batching.events import Listener
from service.batching.lane_loop import LaneLoop
from service.batching.scheduler import Scheduler
from service.batching.step_loop import StepLoop
from service.runtime.plan import (
    AsyncRunner,
    EncodedBatch,
    LanedRunner,
    LaneRunners,
    ModelRunner,
    RunnerLimits,
    Scorer,
)

# One thread encodes ahead for so many lanes. In the model that ships, an encode takes about half as
# long as the steps of the same text; with more lanes, each encodes for itself.
_MAX_LANES_ENCODED_FOR = 2


class SingleLane:
    """A `LanedRunner` of one lane, which encodes for itself: any `ModelRunner`.

    Args:
        runner: runs the model.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self.limits = runner.limits
        self.lanes: Sequence[LaneRunners] = [LaneRunners(alone=runner, beside=runner)]
        self.close = runner.close

    def encode(self, sources: Sequence[tuple[int, ...]]) -> EncodedBatch:
        """Never called: sources are encoded where they join."""
        raise NotImplementedError


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
        clock: seconds, in which requests and deadlines are measured.
        listener: receives the events.
        scorer: scores targets; None if none will come.
    """
    bos_id, eos_id, budget = config.bos_id, config.eos_id, config.encode_token_budget
    if isinstance(runner, AsyncRunner) and runner.depth > 1:
        ahead = AsyncScheduler(
            runner.limits, bos_id=bos_id, eos_id=eos_id, encode_token_budget=budget
        )
        return AsyncLoop(runner, ahead, clock, listener, scorer)
    laned = runner if isinstance(runner, LanedRunner) else SingleLane(runner)
    num_lanes = len(laned.lanes)
    scheduler = Scheduler(
        [lane.alone.limits for lane in laned.lanes],
        bos_id=bos_id,
        eos_id=eos_id,
        encode_token_budget=budget,
        together=config.rows_together * num_lanes,
        encodes_ahead=laned is runner and num_lanes <= _MAX_LANES_ENCODED_FOR,
    )
    return LaneLoop(laned, scheduler, clock, listener, scorer)


def widest_sequence(runner: ModelRunner | LanedRunner) -> RunnerLimits:
    """What one sequence can have of a runner: a beam has to fit into one lane."""
    if isinstance(runner, LanedRunner):
        return min((lane.alone.limits for lane in runner.lanes), key=lambda one: one.max_rows)
    return runner.limits

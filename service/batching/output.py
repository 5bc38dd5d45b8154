"""The scheduler's output: schedules before a step, updates after it."""

from __future__ import annotations

from dataclasses import dataclass, field

from service.batching.records import Finished, RequestEntry
from service.domain.plan import StepPlan


@dataclass(frozen=True)
class Schedule:
    """The next work of a lane.

    Attributes:
        lane: number of the lane.
        scheduled_at: time of the decision, in seconds of the engine's clock.
        plan: plan for the runner; None if no row is in use.
        admitted: requests that join the batch with this plan.
        dropped: results of requests cancelled or expired before this plan.
        scoring: requests with targets to score after the plan; to be ended with `scored`.
    """

    lane: int
    scheduled_at: float
    plan: StepPlan | None
    admitted: list[RequestEntry]
    dropped: list[Finished]
    scoring: list[RequestEntry] = field(default_factory=list)


@dataclass(frozen=True)
class Update:
    """The results of a step.

    Attributes:
        streamed: ids and new tokens of the requests that stream, without EOS.
        finished: results of requests that reached EOS or their length.
    """

    streamed: list[tuple[int, list[int]]]
    finished: list[Finished]

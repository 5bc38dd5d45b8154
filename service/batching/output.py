"""What the scheduler decides, and what a step brought."""

from __future__ import annotations

from dataclasses import dataclass, field

from service.batching.records import Finished, RequestEntry
from service.domain.plan import StepPlan


@dataclass(frozen=True)
class Schedule:
    """What a lane does next.

    Attributes:
        lane: its number.
        scheduled_at: when this was decided.
        plan: for the runner; None if no row is in use.
        admitted: requests that join the batch with this plan.
        dropped: requests that were cancelled or expired before it.
        scoring: requests with a target to score, after the plan; end it with `scored`.
    """

    lane: int
    scheduled_at: float
    plan: StepPlan | None
    admitted: list[RequestEntry]
    dropped: list[Finished]
    scoring: list[RequestEntry] = field(default_factory=list)


@dataclass(frozen=True)
class Update:
    """What a step brought.

    Attributes:
        streamed: ids and new tokens of the requests that stream, EOS never among them.
        finished: requests that reached EOS or their length.
    """

    streamed: list[tuple[int, list[int]]]
    finished: list[Finished]

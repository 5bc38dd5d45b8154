"""Limits and special ids of an engine."""

from __future__ import annotations

import math
from dataclasses import dataclass

from service.errors import InvalidArgumentError


@dataclass(frozen=True)
class EngineConfig:
    """Limits and special ids of an engine.

    Attributes:
        bos_id, eos_id: the model's ids that begin and end a target.
        max_waiting: number of rows that may wait, in addition to those of the runner. Half of them
            are reserved for new calls.
        max_queue_seconds: longest expected wait of a call for its first sequence to begin; beyond
            it, a call is refused. None for the automatic limit of `service.engine.admission`.
        encode_token_budget: most source tokens to encode in one iteration.
        turn_rows_per_lane: most rows for each lane of the runner with which lanes take turns, each
            with all arithmetic threads; with more, they step concurrently.
        step_seconds: duration of a step of one row, measured before serving; 0 if unknown.
    """

    bos_id: int = 2
    eos_id: int = 3
    max_waiting: int = 1024
    max_queue_seconds: float | None = math.inf
    encode_token_budget: int = 512
    turn_rows_per_lane: int = 8
    step_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.max_waiting < 0:
            raise InvalidArgumentError("max_waiting", f"must not be negative: {self.max_waiting}")
        if self.encode_token_budget < 1:
            raise InvalidArgumentError(
                "encode_token_budget", f"must be at least 1, not {self.encode_token_budget}"
            )

"""Greedy loops over a `ModelRunner`, for tests that are not about the engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.domain.plan import EncodeItem, ModelRunner, StepOutput, StepPlan

NO_ROWS = np.zeros(0, np.int64), np.zeros(0, np.int32)
"""Token ids and positions of a plan without rows."""


def greedy_steps(
    runner: ModelRunner,
    sources: Sequence[tuple[int, ...]],
    num_steps: int,
    bos_id: int = 2,
    top_k: int | None = None,
) -> list[StepOutput]:
    """Encode sources into rows 0, 1, ..., then run greedy steps, which do not stop at EOS."""
    return steps_from(runner, first_plan(sources, bos_id, top_k), num_steps)


def first_plan(
    sources: Sequence[tuple[int, ...]], bos_id: int = 2, top_k: int | None = None
) -> StepPlan:
    """The first step of sources, which are encoded into rows 0, 1, ..."""
    rows = len(sources)
    encodes = [EncodeItem((row,), source) for row, source in enumerate(sources)]
    starts = np.full(rows, bos_id, np.int64), np.zeros(rows, np.int32)
    return StepPlan((), encodes, *starts, top_k=top_k)


def steps_from(runner: ModelRunner, plan: StepPlan, num_steps: int) -> list[StepOutput]:
    """The step of a plan, and greedy steps of its rows after it."""
    outputs = [runner.execute(plan)]
    for _ in range(num_steps - 1):
        plan = plan.followed_by(outputs[-1])
        outputs.append(runner.execute(plan))
    return outputs


def follow_ups(runner: ModelRunner, plan: StepPlan, num_steps: int) -> list[StepOutput]:
    """The steps of `greedy_steps`, with `follow_up` after the first."""
    return [runner.execute(plan), *(runner.follow_up() for _ in range(num_steps - 1))]


def rows_equal(first: StepOutput, i: int, second: StepOutput, j: int) -> bool:
    """Whether row i of one output is row j of another, bit for bit."""
    return all(
        getattr(first, name)[i].tobytes() == getattr(second, name)[j].tobytes()
        for name in ("top_ids", "top_logits", "log_sum_exp")
    )


def same(first: StepOutput, second: StepOutput) -> bool:
    """Whether all rows of two outputs are equal, bit for bit."""
    rows = range(len(first.top_ids))
    return len(second.top_ids) == len(rows) and all(
        rows_equal(first, row, second, row) for row in rows
    )


def same_steps(first: Sequence[StepOutput], second: Sequence[StepOutput]) -> bool:
    """Whether all rows of all steps are equal, bit for bit."""
    return len(first) == len(second) and all(map(same, first, second))


def same_row(first: Sequence[StepOutput], i: int, second: Sequence[StepOutput], j: int) -> bool:
    """Whether row i of some steps is row j of others, bit for bit."""
    return all(rows_equal(one, i, other, j) for one, other in zip(first, second, strict=True))

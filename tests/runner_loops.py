"""Greedy loops over a `ModelRunner`, for tests that are not about the engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.domain.plan import EncodeItem, ModelRunner, StepOutput, StepPlan


def greedy_steps(
    runner: ModelRunner,
    sources: Sequence[tuple[int, ...]],
    num_steps: int,
    bos_id: int = 2,
    top_k: int | None = None,
) -> list[StepOutput]:
    """Encode sources into rows 0, 1, ..., then run greedy steps, which do not stop at EOS."""
    rows = len(sources)
    encodes = [EncodeItem((row,), source) for row, source in enumerate(sources)]
    token_ids = np.full(rows, bos_id, np.int64)
    outputs = []
    for step in range(num_steps):
        positions = np.full(rows, step, np.int32)
        plan = StepPlan((), encodes, token_ids, positions, top_k=top_k)
        outputs.append(runner.execute(plan))
        encodes, token_ids = [], outputs[-1].top_ids[:, 0]
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

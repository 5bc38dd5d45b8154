"""The fake runner catches every plan that would make a real one compute nonsense."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from service.domain.plan import EncodeItem, RowCopy, RunnerLimits, StepPlan
from tests.fake_runner import FakeRunner, PlanError

BOS, EOS = 2, 3
SOURCES = {0: (10, EOS), 1: (11, EOS)}
SCRIPT: dict[tuple[int, ...], list[int]] = {(10, EOS): [20, 21, 22], (11, EOS): [30, 31, 32, 33]}
LIMITS = RunnerLimits(
    max_rows=3, max_source_positions=4, max_target_positions=5, top_k=2, vocab_size=64
)


def plan(
    token_ids: Sequence[int],
    positions: Sequence[int],
    encodes: Sequence[EncodeItem] = (),
    copies: Sequence[RowCopy] = (),
) -> StepPlan:
    return StepPlan(copies, encodes, np.array(token_ids, np.int64), np.array(positions, np.int32))


def begun(num_steps: int = 1) -> FakeRunner:
    """A runner in which two rows have made some steps."""
    runner = FakeRunner(LIMITS, lambda source_ids: SCRIPT[source_ids])
    encodes = [EncodeItem((row,), source) for row, source in SOURCES.items()]
    token_ids = [BOS, BOS]
    for position in range(num_steps):
        output = runner.execute(plan(token_ids, [position] * 2, encodes if position == 0 else ()))
        token_ids = output.top_ids[:, 0].tolist()
    return runner


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (plan([20, 30], [1, 2]), "steps at 2 with 1 positions"),
        (plan([20, 30], [1, 0]), "begins with 30, not BOS"),
        (plan([20, BOS], [1, 0]), "steps at 0 with 1 positions"),
        (plan([20, 30, BOS], [1, 1, 0]), "row 2 steps before it was encoded"),
        (plan([20, 30, BOS, BOS], [1, 1, 0, 0]), "4 rows are too many"),
        (plan([20, 30], [1]), "differ in length"),
        (plan([20], [1], [EncodeItem((1,), (10, EOS))]), "row 1 is not in use"),
        (plan([20], [1], [EncodeItem((3,), (10, EOS))]), "there is no row 3"),
        (plan([BOS], [0], [EncodeItem((0,), (10,) * 5)]), "a source of 5 tokens"),
        (plan([30], [1], copies=[RowCopy(1, 0, 0, 2)]), "has not"),
        (plan([30], [1], copies=[RowCopy(2, 0, 0, 1)]), "row 2 holds no source"),
        (plan([30], [1], copies=[RowCopy(1, 3, 0, 1)]), "there is no row 3"),
        (plan([30], [1], copies=[RowCopy(1, 0, 0, 1), RowCopy(0, 0, 0, 1)]), "written twice"),
        (plan([30], [1], copies=[RowCopy(1, 0, 0, 0)]), "steps at 1 with 0 positions"),
    ],
)
def test_a_broken_plan_is_refused(broken: StepPlan, complaint: str) -> None:
    with pytest.raises(PlanError, match=complaint):
        begun().execute(broken)


def test_a_row_that_is_full_must_not_step() -> None:
    with pytest.raises(PlanError, match="is full"):
        begun(5).execute(plan([EOS, EOS], [5, 5]))


def test_a_copy_must_not_keep_another_beginning() -> None:
    runner = begun(2)  # the second tokens differ: 20 and 30
    with pytest.raises(PlanError, match="beginning"):
        runner.execute(plan([31], [2], copies=[RowCopy(1, 0, 2, 2)]))

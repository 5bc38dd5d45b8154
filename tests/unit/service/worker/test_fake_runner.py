"""The fake runner catches every plan that would make a real one compute nonsense."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from service.domain.plan import EncodeItem, RowCopy, RunnerLimits, StepPlan
from service.domain.requests import FinishReason
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


def test_it_answers_by_its_script_then_eos() -> None:
    runner = begun()
    chosen = [
        runner.execute(plan([7, 7], [position] * 2)).top_ids[:, 0].tolist()
        for position in range(1, 5)
    ]
    assert chosen == [[21, 31], [22, 32], [EOS, 33], [EOS, EOS]]
    assert runner.predict((10, EOS), 5) == ([20, 21, 22], FinishReason.EOS)
    assert runner.predict((11, EOS), 3) == ([30, 31, 32], FinishReason.LENGTH)


def test_a_moved_row_goes_on_where_it_was() -> None:
    runner = begun(2)
    output = runner.execute(plan([31], [2], copies=[RowCopy(1, 0, 0, 2)]))
    assert output.top_ids[0, 0] == 32


def test_copies_are_gathered_before_any_is_written() -> None:
    runner = begun()
    swap = [RowCopy(0, 1, 0, 1), RowCopy(1, 0, 0, 1)]
    assert runner.execute(plan([0, 0], [1, 1], copies=swap)).top_ids[:, 0].tolist() == [31, 21]


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (plan([20, 30], [1, 2]), "steps at 2 with 1 positions"),
        (plan([20, 30], [1, 0]), "begins with 30, not BOS"),
        (plan([20, BOS], [1, 0]), "steps at 0 with 1 positions"),
        (plan([20, 30, BOS], [1, 1, 0]), "row 2 steps before it was encoded"),
        (plan([20, 30, BOS, BOS], [1, 1, 0, 0]), "4 rows are too many"),
        (plan([20, 30], [1]), "differ in length"),
        (plan([20], [1], [EncodeItem((1,), (10, EOS))]), "row 1 does not step"),
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


def test_it_fails_when_told_to_and_then_goes_on() -> None:
    runner = begun()
    runner.fail_next(ValueError("as told"))
    with pytest.raises(ValueError, match="as told"):
        runner.execute(plan([20, 30], [1, 1]))
    runner.execute(plan([20, 30], [1, 1]))


def test_after_its_end_it_executes_nothing() -> None:
    runner = begun()
    runner.close()
    with pytest.raises(PlanError, match="after close"):
        runner.execute(plan([20, 30], [1, 1]))
    with pytest.raises(PlanError, match="twice"):
        runner.close()


def test_nobody_reaching_the_gate_is_told() -> None:
    runner = FakeRunner(LIMITS)
    runner.hold()
    with pytest.raises(TimeoutError):
        runner.wait_until_blocked(0.0)

"""The states that the host sends, to a device that does what the step graph does."""

from __future__ import annotations

import random
from collections import deque

import numpy as np
import pytest

from service.domain.plan import EncodeItem, Int64, StepPlan
from service.runtime.cuda.row_states import DeviceRowStates

EOS = 3
MAX_POSITIONS = 12
ROWS = 8


class Device:
    """The states of rows, as `export.decoder_step_graph` continues them."""

    def __init__(self) -> None:
        self.states = np.full((4, ROWS), -7, np.int64)
        self.sent: list[int] = []

    def set_rows(self, rows: Int64, values: Int64) -> None:
        self.states[:, rows] = values
        self.sent += rows.tolist()

    def step(self, batch_size: int, chance: random.Random) -> Int64:
        token_ids, positions, running, _ = self.states[:, :batch_size]
        assert (positions < MAX_POSITIONS).all()  # what lies behind is another row's
        chosen = np.array([chance.choice([EOS, 5, 6, 7, 8, 9]) for _ in range(batch_size)])
        running[chosen == EOS] = 0
        positions += running
        token_ids[:] = chosen
        return chosen


def sent(
    rows: DeviceRowStates, device: Device, plan: StepPlan, batch_size: int = ROWS
) -> list[int]:
    """The rows whose states were sent for `plan`."""
    device.sent = []
    if not rows.is_up_to_date(plan):
        rows.update(batch_size, plan, device.set_rows)
    return device.sent


def greedy(num_rows: int, chained: bool = True) -> StepPlan:
    return StepPlan(
        (), (), np.full(num_rows, 2), np.zeros(num_rows, np.int32),
        chained=np.full(num_rows, chained),
    )  # fmt: skip


def new_rows() -> tuple[DeviceRowStates, Device]:
    rows, device = DeviceRowStates(ROWS, MAX_POSITIONS, EOS), Device()
    rows.update(ROWS, None, device.set_rows)
    return rows, device


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("seed", range(20))
def test_rows_come_and_go_while_steps_are_unseen(depth: int, seed: int) -> None:
    """Each running row is in the state that it would have if the host saw everything at once."""
    chance = random.Random(seed)
    rows, device = new_rows()
    unseen: deque[tuple[int, Int64]] = deque()
    wanted: list[tuple[int, int] | None] = []  # token and position of each row; None if it ended
    for _ in range(60):
        while len(unseen) >= depth:
            rows.completed(*unseen.popleft())
        chained = np.ones(len(wanted), np.bool_)
        for row in range(len(wanted)):
            if chance.random() < 0.1:
                wanted[row], chained[row] = (2, 0), False  # another request's now
        if len(wanted) < ROWS and chance.random() < 0.3:
            wanted.append((2, 0))
            chained = np.append(chained, False)
        elif wanted and chance.random() < 0.1:
            wanted.pop()
            chained = chained[:-1]
        if not wanted:
            continue
        count = len(wanted)
        new = np.flatnonzero(~chained)
        items = [EncodeItem((int(row),), (5,) * chance.randint(1, 4)) for row in new]
        rows.stored(items)
        plan = StepPlan((), items, np.full(count, 2), np.zeros(count, np.int32), chained=chained)
        sent(rows, device, plan)
        for row, state in enumerate(wanted):
            token, position, running, length = device.states[:, row]
            assert length == rows.source_lengths[row]
            if state is not None:
                assert (token, position, running) == (*state, 1)
            else:
                assert not running
        assert not device.states[2, count:].any()
        chosen = device.step(ROWS, chance)
        for row, state in enumerate(wanted):
            ended = state is None or chosen[row] == EOS or state[1] + 1 == MAX_POSITIONS
            wanted[row] = None if ended or state is None else (int(chosen[row]), state[1] + 1)
        unseen.append((rows.stepped(plan), chosen[:count]))


def test_rows_that_continue_are_not_sent() -> None:
    rows, device = new_rows()
    chance = random.Random(1)
    assert sent(rows, device, greedy(4, chained=False)) == [0, 1, 2, 3]
    for _ in range(3):
        device.step(ROWS, chance)
        rows.stepped(greedy(4))
        assert rows.is_up_to_date(greedy(4))
    assert sent(rows, device, greedy(3)) == [3]  # it has left
    assert not device.states[2, 3]


def test_a_host_that_sees_each_step_sends_only_what_is_new() -> None:
    """As searches go that choose for themselves: beams, samples."""
    rows, device = new_rows()
    sent(rows, device, greedy(3, chained=False))
    device.states[0, :3] = chosen = np.array([5, 6, EOS])
    device.states[1, :3] += [1, 1, 0]
    device.states[2, 2] = 0
    rows.completed(rows.stepped(greedy(3, chained=False)), chosen)

    def sent_for(*token_ids: int) -> list[int]:
        return sent(
            rows, device, StepPlan((), (), np.array(token_ids), np.ones(len(token_ids), np.int32))
        )

    assert sent_for(5, 6) == [2]  # only that it has left
    assert sent_for(5, 9, 8) == [1, 2]  # another token; one that ended, and continues
    assert device.states[:3, :3].tolist() == [[5, 9, 8], [1, 1, 1], [1, 1, 1]]


def test_nothing_is_learnt_of_a_step_that_another_has_followed() -> None:
    rows, device = new_rows()
    sent(rows, device, greedy(2, chained=False))
    first = rows.stepped(greedy(2, chained=False))
    second = rows.stepped(greedy(2))
    rows.completed(first, np.array([5, 5]))
    plan = StepPlan((), (), np.array([5, 5]), np.ones(2, np.int32))
    assert sent(rows, device, plan) == [0, 1]  # rather once too often
    rows.completed(second, np.array([6, 6]))


def test_after_a_failure_nothing_is_known() -> None:
    rows, device = new_rows()
    sent(rows, device, greedy(2, chained=False))
    number = rows.stepped(greedy(2, chained=False))
    rows.forget()
    rows.completed(number, np.array([5, 5]))
    assert sent(rows, device, greedy(2), batch_size=4) == [0, 1, 2, 3]
    assert device.states[:3, :2].tolist() == [[0, 0]] * 3  # free rows
    rows.stepped(greedy(2))
    assert not sent(rows, device, greedy(2))

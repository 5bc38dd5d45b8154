"""How many threads: the fastest number on this machine as it is now, found cheaply."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.bundle.threads import candidates, choose_threads, fastest
from model.bundle.timing import time_choices


class Machine:
    """Steps take what `seconds` says of the number of threads and of how often it was tried."""

    def __init__(self, seconds: Callable[[int, int], float]) -> None:
        self.seconds = seconds
        self.now = 0.0
        self.threads = 0
        self.steps: Counter[int] = Counter()

    def step(self) -> None:
        self.steps[self.threads] += 1
        self.now += self.seconds(self.threads, self.steps[self.threads])

    def measure(self, counts: list[int]) -> dict[int, float]:
        def set_threads(count: int) -> None:
            self.threads = count

        return time_choices(self.step, counts, set_threads, clock=lambda: self.now)


@given(
    st.dictionaries(st.integers(1, 64), st.floats(0.001, 10.0), min_size=1, max_size=4),
    st.floats(1.0, 1000.0),
)
def test_the_fastest_number_is_found_whatever_the_first_step_takes(
    seconds: dict[int, float], warm_up: float
) -> None:
    machine = Machine(lambda count, step: seconds[count] * (warm_up if step == 1 else 1.0))
    found = machine.measure(sorted(seconds))
    for count, taken in found.items():
        assert taken == pytest.approx(seconds[count], rel=1e-6)
    best = fastest(found)
    assert all(seconds[best] <= 1.06 * taken for taken in seconds.values())
    # Of equals the smallest.
    assert all(taken > seconds[best] / 1.06 for count, taken in seconds.items() if count < best)


def test_one_slow_step_does_not_decide() -> None:
    machine = Machine(lambda count, step: 1.9 if (count, step) == (2, 3) else 1.0 / count)
    assert fastest(machine.measure([1, 2])) == 2


def test_a_number_that_is_clearly_slower_is_tried_no_more() -> None:
    machine = Machine(lambda count, step: 3.0 if count == 2 else 0.12)
    found = machine.measure([1, 2])
    assert fastest(found) == 1
    assert found == {1: pytest.approx(0.12), 2: pytest.approx(3.0)}
    assert machine.steps == {1: 4, 2: 2}


def test_one_half_and_all_of_the_cores_are_tried() -> None:
    assert [candidates(cores) for cores in (1, 2, 3, 16)] == [[1], [1, 2], [1, 3], [1, 8, 16]]


def test_what_was_asked_for_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def step() -> None:
        raise AssertionError

    before = torch.get_num_threads()
    try:
        assert choose_threads(step, "a batch", threads=3) == torch.get_num_threads() == 3
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        with caplog.at_level(logging.INFO):
            assert choose_threads(step, "a batch") == 3
        assert "threads: 3, as OMP_NUM_THREADS says" in caplog.text
    finally:
        torch.set_num_threads(before)


def test_the_choice_is_one_line_with_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("model.bundle.threads.num_usable_cores", lambda: 2)
    before = torch.get_num_threads()
    try:
        with caplog.at_level(logging.INFO):
            chosen = choose_threads(lambda: None, "a batch")
        assert chosen == torch.get_num_threads()
        (record,) = caplog.records
        assert f"threads: {chosen}, measured" in record.message
        assert record.message.count("s a batch with") == 2
        assert "--threads" in record.message
    finally:
        torch.set_num_threads(before)

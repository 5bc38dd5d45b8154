"""The latency model learns the engine's speed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.latency_model import LatencyModel


def test_who_knows_nothing_expects_no_wait() -> None:
    latency = LatencyModel(64)
    assert latency.rows_per_second() == math.inf
    assert latency.step_seconds(64) == latency.sequence_seconds() == 0.0


@given(
    start=st.floats(1e-5, 0.1),
    slope=st.floats(0.0, 1e-2),
    max_rows=st.integers(2, 256),
    widths=st.lists(st.floats(0.0, 1.0), min_size=20, max_size=60),
)
def test_a_line_is_found(start: float, slope: float, max_rows: int, widths: list[float]) -> None:
    latency = LatencyModel(max_rows)
    rows = [1 + round(width * (max_rows - 1)) for width in widths]
    for num_rows in [*rows, *[1] * 20, *[max_rows] * 20]:
        latency.stepped(num_rows, start + slope * num_rows)
    for num_rows in (1, max_rows):
        assert latency.step_seconds(num_rows) == pytest.approx(start + slope * num_rows, rel=1e-6)
    enough = latency.enough_rows()
    most = max_rows / (start + slope * max_rows)
    assert 1 <= enough <= max_rows
    assert enough / latency.step_seconds(enough) >= 0.949 * most
    if enough > 1:
        assert (enough - 1) / latency.step_seconds(enough - 1) < 0.951 * most


def test_the_widest_steps_count_most() -> None:
    """If time doesn't grow linearly, the estimate is right for the width with a queue."""
    latency = LatencyModel(64)
    for num_rows in [*[1] * 20, *[8] * 20, *[64] * 200]:
        latency.stepped(num_rows, 1e-3 + 1e-6 * num_rows**2)
    assert latency.rows_per_second() == pytest.approx(64 / 5.096e-3, rel=0.01)


@pytest.mark.parametrize("num_stalls", [1, 2, 4])
def test_an_engine_s_first_steps_are_not_its_pace(num_stalls: int) -> None:
    """The first steps read the weights from the disk."""
    latency = LatencyModel(8)
    latency.stepped(8, 10.0)
    assert latency.step_seconds(8) == 0.0, "nothing is known yet"
    for _ in range(num_stalls - 1):
        latency.stepped(8, 10.0)
    for _ in range(10):
        latency.stepped(8, 0.01)
    assert latency.step_seconds(8) == pytest.approx(0.01)


def test_a_stall_in_the_first_step_of_a_width_is_soon_forgotten() -> None:
    latency = LatencyModel(8)
    for _ in range(100):
        latency.stepped(1, 0.01)
    latency.stepped(8, 10.0)
    for _ in range(20):
        latency.stepped(8, 0.02)
    assert latency.step_seconds(8) == pytest.approx(0.02)


def test_a_stall_is_no_new_pace() -> None:
    latency = LatencyModel(8)
    for _ in range(500):
        latency.stepped(8, 0.01)
    latency.stepped(8, 60.0)
    assert latency.step_seconds(8) < 0.012


def test_a_slower_machine_is() -> None:
    latency = LatencyModel(8)
    for seconds in (0.01, 0.03):
        for _ in range(1000):
            latency.stepped(8, seconds)
    assert latency.step_seconds(8) == pytest.approx(0.03, rel=0.05)


def test_lengths_follow_the_source() -> None:
    latency, rng = LatencyModel(8), np.random.default_rng(0)
    for _ in range(2000):
        source = int(rng.integers(5, 60))
        latency.submitted(source)
        latency.finished(source, round(1.3 * source * rng.uniform(0.6, 1.4)))
    assert latency.expected_steps(40) == pytest.approx(52, rel=0.1)
    assert latency.mean_steps == pytest.approx(1.3 * 32, rel=0.15)
    # One in ten is shorter.
    assert latency.least_steps(40) == pytest.approx(0.68 * 52, rel=0.15)


def test_those_that_end_first_are_not_taken_for_all() -> None:
    latency = LatencyModel(64)
    for source in [10, 20, 30, 40, 50, 60] * 20:
        latency.submitted(source)
    latency.finished(10, 10)
    assert latency.mean_steps == pytest.approx(35, rel=0.05)


def test_lanes_of_different_speed_add_up() -> None:
    """16 rows that step in 10 ms beside one that steps in 2 ms: 2.1 rows a millisecond."""
    latency = LatencyModel(17)
    for number in range(2000):
        latency.stepped(17, 0.002, share=1 / 17)
        if number % 5 == 0:
            latency.stepped(17, 0.010, share=16 / 17)
    assert latency.rows_per_second() == pytest.approx(16 / 0.010 + 1 / 0.002, rel=0.02)


def test_encodes_beside_the_steps_limit_what_they_can_bring() -> None:
    latency = LatencyModel(64)
    for _ in range(100):
        latency.submitted(10)
        latency.finished(10, 20)  # twice as many steps
        latency.stepped(64, 0.004)
    assert latency.mean_steps == pytest.approx(20, rel=0.3)
    assert latency.rows_per_second() == pytest.approx(64 / 0.004)
    for _ in range(50):
        latency.encoded(4, 4 * 0.0005)  # done while others step
    assert latency.rows_per_second() == pytest.approx(64 / 0.004)
    for _ in range(1000):
        latency.encoded(2, 2 * 0.01)
    assert latency.rows_per_second() == pytest.approx(latency.mean_steps / 0.01, rel=0.01)

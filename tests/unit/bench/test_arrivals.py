import numpy as np
import pytest

from bench.load.arrivals import arrival_times


def test_constant_arrivals_are_evenly_spaced() -> None:
    times = arrival_times("constant", 4.0, 2.0, seed=0)
    assert times.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]


@pytest.mark.parametrize(("rate", "seconds", "count"), [(0.1, 20.0, 2), (3.0, 1.0, 3), (7, 0.1, 1)])
def test_constant_arrivals_lie_in_the_duration(rate: float, seconds: float, count: int) -> None:
    times = arrival_times("constant", rate, seconds, seed=0)
    assert len(times) == count
    assert times[-1] < seconds


def test_poisson_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() -> None:
    times = arrival_times("poisson", 100.0, 500.0, seed=1)
    per_second = np.histogram(times, bins=500, range=(0, 500))[0]
    assert per_second.mean() == pytest.approx(100, rel=0.02)
    assert per_second.var() / per_second.mean() == pytest.approx(1.0, abs=0.2)
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.03)
    assert (gaps >= 0).all()
    assert times[0] >= 0
    assert times[-1] < 500


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_burstiness_is_the_squared_coefficient_of_variation(burstiness: float) -> None:
    gaps = np.diff(arrival_times("gamma", 50.0, 2000.0, seed=2, burstiness=burstiness))
    assert 1 / gaps.mean() == pytest.approx(50, rel=0.05)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(burstiness, rel=0.1)


def test_the_seed_decides() -> None:
    same = [arrival_times("poisson", 20, 10, seed=3) for _ in range(2)]
    assert same[0].tolist() == same[1].tolist()
    assert same[0].tolist() != arrival_times("poisson", 20, 10, seed=4).tolist()

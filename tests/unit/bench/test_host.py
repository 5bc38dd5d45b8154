from __future__ import annotations

from pathlib import Path

import pytest

from bench.load.host import HostTimes, other_cores, read_times


def test_times_of_this_machine_grow() -> None:
    before = read_times()
    sum(range(2_000_000))
    after = read_times()
    if before is None or after is None:
        pytest.skip("this system does not tell")
    spent = before.until(after)
    assert spent["seconds"] > 0
    assert spent["own_seconds"] > 0
    assert spent["busy_seconds"] >= 0


def test_the_fields_of_proc_stat(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 200 300 9999 9999 10 20 50 7 7\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    times = read_times(stat)
    assert times is not None
    assert times.stolen * 630 == pytest.approx(times.busy * 50)
    stat.write_text("something else\n")
    assert read_times(stat) is None
    assert read_times(tmp_path / "none") is None


def test_others_are_what_is_left() -> None:
    spent = HostTimes(100.0, 1.0, 5.0, 10.0).until(HostTimes(119.0, 3.0, 5.5, 20.0))
    # 19 busy and 2 stolen; of these 0.5 ours, 1.5 the generator's, 15 the server's.
    assert other_cores(spent, generator_seconds=1.5, server_cores=1.5) == pytest.approx(0.4)
    assert other_cores(spent, generator_seconds=1.5, server_cores=3.0) == 0.0

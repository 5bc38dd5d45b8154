"""Which processors multiply 8-bit integers exactly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from model.bundle.processor import multiplies_int8_exactly, num_usable_cores, usable_memory

CPUINFO = "processor\t: 0\nmodel name\t: Some Processor\nflags\t\t: fpu sse4_2 {}\nbugs\t\t:\n"


@pytest.mark.parametrize(
    ("flags", "exact"),
    [
        ("avx2 avx512f avx512_vnni", True),
        ("avx2 avx_vnni", True),
        ("avx512f amx_int8", True),
        ("avx2", False),
        ("avx2 avx512f avx512bw", False),
        ("", False),
    ],
)
def test_x86_needs_a_flag(tmp_path: Path, flags: str, exact: bool) -> None:
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(flags))
    assert multiplies_int8_exactly("x86_64", tmp_path / "cpuinfo") is exact
    assert multiplies_int8_exactly("AMD64", tmp_path / "cpuinfo") is exact


def test_unreadable_flags_count_as_none(tmp_path: Path) -> None:
    assert not multiplies_int8_exactly("x86_64", tmp_path / "nowhere")
    (tmp_path / "cpuinfo").write_bytes(b"\xff no such line\n")
    assert not multiplies_int8_exactly("x86_64", tmp_path / "cpuinfo")


def test_other_processors_do(tmp_path: Path) -> None:
    assert multiplies_int8_exactly("aarch64", tmp_path / "nowhere")


ONE, MANY = "100000 100000\n", "100000000 100000\n"
QUOTA, PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"


def written(folder: Path, files: dict[str, str], membership: str) -> tuple[Path, Path]:
    """The folder of control groups, and the list of those of a process."""
    cgroup, listed = folder / "cgroup", folder / "listed"
    listed.write_text(membership)
    for name, text in files.items():
        (cgroup / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroup / name).write_text(text)
    return cgroup, listed


@pytest.mark.parametrize(
    ("files", "membership", "expected"),
    [
        # Version 2, in a container: its own group is the root.
        ({"cpu.max": ONE}, "0::/\n", 1),
        ({"cpu.max": ONE}, "", 1),
        ({"cpu.max": "50000 100000\n"}, "0::/\n", 1),
        ({"cpu.max": "199999 100000\n"}, "0::/\n", 1),
        ({"cpu.max": "max 100000\n"}, "0::/\n", None),
        ({"cpu.max": MANY}, "0::/\n", None),
        ({"cpu.max": "nonsense"}, "nonsense", None),
        # A service of systemd with CPUQuota=100%, and a limit of what it is in.
        ({"system.slice/dragoman.service/cpu.max": ONE}, "0::/system.slice/dragoman.service\n", 1),
        ({"pods/cpu.max": ONE, "pods/a/cpu.max": MANY}, "0::/pods/a\n", 1),
        # Not its own.
        ({"other/cpu.max": ONE, "own/cpu.max": "max 100000\n"}, "0::/own\n", None),
        # Version 1, in a container; the list has the path that it has outside.
        ({f"cpu/{QUOTA}": "150000\n", f"cpu/{PERIOD}": "100000\n"}, "4:cpu,cpuacct:/docker/1", 1),
        ({f"cpu/{QUOTA}": "-1\n", f"cpu/{PERIOD}": "100000\n"}, "4:cpu,cpuacct:/docker/1", None),
        ({f"cpu/a/{QUOTA}": "100000", f"cpu/a/{PERIOD}": "100000"}, "3:cpuset:/\n4:cpu:/a\n", 1),
        ({f"cpu/a/{QUOTA}": "100000", f"cpu/a/{PERIOD}": "100000"}, "3:cpuset:/a\n4:cpu:/\n", None),
        ({}, "0::/\n", None),
    ],
)
def test_a_control_group_s_quota_is_kept(
    tmp_path: Path, files: dict[str, str], membership: str, expected: int | None
) -> None:
    cgroup, listed = written(tmp_path, files, membership)
    without = num_usable_cores(tmp_path / "nowhere", tmp_path / "nowhere")
    assert without == len(os.sched_getaffinity(0))
    assert num_usable_cores(cgroup, listed) == (without if expected is None else expected)


MIB = 2**20


@pytest.mark.parametrize(
    ("files", "membership", "expected"),
    [
        ({"memory.max": f"{64 * MIB}\n"}, "0::/\n", 64),
        ({"memory.max": "max\n"}, "0::/\n", None),
        ({"memory.max": "nonsense"}, "nonsense", None),
        # Less than the machine has is what counts.
        ({"memory.max": f"{2**59}\n"}, "0::/\n", None),
        ({"a/memory.max": f"{96 * MIB}", "a/b/memory.max": f"{128 * MIB}"}, "0::/a/b\n", 96),
        ({"other/memory.max": f"{64 * MIB}"}, "0::/own\n", None),
        # Version 1, which has a large number where there is no limit.
        ({"memory/memory.limit_in_bytes": f"{64 * MIB}"}, "9:memory:/docker/1", 64),
        ({"memory/memory.limit_in_bytes": "9223372036854771712"}, "9:memory:/", None),
        ({"memory/a/memory.limit_in_bytes": f"{64 * MIB}"}, "9:memory:/a\n4:cpu:/", 64),
    ],
)
def test_a_control_group_s_memory_limit_is_kept(
    tmp_path: Path, files: dict[str, str], membership: str, expected: int | None
) -> None:
    cgroup, listed = written(tmp_path, files, membership)
    machine = usable_memory(tmp_path / "nowhere", tmp_path / "nowhere")
    assert machine > 128 * MIB
    assert usable_memory(cgroup, listed) == (machine if expected is None else expected * MIB)

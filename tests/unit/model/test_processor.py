"""Which processors multiply 8-bit integers exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.processor import multiplies_int8_exactly, num_usable_cores

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


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "199999 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "100000000 100000\n"}, None),
        ({"cpu.max": "nonsense"}, None),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_a_container_s_quota_is_kept(
    tmp_path: Path, files: dict[str, str], expected: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    without = num_usable_cores(tmp_path / "nowhere")
    assert without >= 1
    assert num_usable_cores(tmp_path) == (without if expected is None else expected)

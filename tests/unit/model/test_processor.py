"""Which processors multiply 8-bit integers exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.processor import multiplies_int8_exactly

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

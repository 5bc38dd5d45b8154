"""What this processor can do exactly."""

from __future__ import annotations

import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_EXACT_FLAGS = {"avx512_vnni", "avx_vnni", "amx_int8"}


def multiplies_int8_exactly(machine: str | None = None, cpuinfo: Path = _CPUINFO) -> bool:
    """Whether unsigned-by-signed 8-bit products are summed in 32 bits.

    x86 without VNNI adds pairs of them in 16 bits and saturates: 255 * 127 * 2 does not fit. Other
    processors don't have that instruction. Where the flags can't be read, the answer is no.

    Args:
        machine: as `platform.machine()` gives it, which is the default.
        cpuinfo: where Linux lists the processor's flags.
    """
    if (machine or platform.machine()).lower() not in {"x86_64", "amd64", "i686", "i386"}:
        return True
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), [])
    return not _EXACT_FLAGS.isdisjoint(flags)

"""Capabilities of this processor, and the cores and memory that this process may use."""

from __future__ import annotations

import os
import platform
from pathlib import Path, PurePosixPath

_CPUINFO = Path("/proc/cpuinfo")
_CGROUP = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_UNLIMITED_BYTES = 2**60  # version 1 has no word for it, but a very large number
_EXACT_FLAGS = {"avx512_vnni", "avx_vnni", "amx_int8"}


def multiplies_int8_exactly(machine: str | None = None, cpuinfo: Path = _CPUINFO) -> bool:
    """Whether unsigned-by-signed 8-bit products are summed in 32 bits.

    x86 without VNNI adds pairs of them in 16 bits and saturates: 255 * 127 * 2 does not fit. Other
    processors don't have that instruction. Where the flags can't be read, the answer is no.

    Args:
        machine: as `platform.machine()` gives it, which is the default.
        cpuinfo: file in which Linux lists the processor's flags.
    """
    if (machine or platform.machine()).lower() not in {"x86_64", "amd64", "i686", "i386"}:
        return True
    return not _EXACT_FLAGS.isdisjoint(_flags(cpuinfo))


def instruction_sets() -> str:
    """The architecture and its instruction sets: results may differ in bits between two of them."""
    return " ".join([platform.machine(), *sorted(_flags(_CPUINFO))])


def has_instructions(name: str) -> bool:
    """Whether this x86 processor has an instruction set, such as "AVX512"; False if unknown."""
    flag = name.lower()
    return any(each == flag or each == f"{flag}f" for each in _flags(_CPUINFO))


def _flags(cpuinfo: Path) -> list[str]:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), [])


def num_usable_cores(cgroup: Path = _CGROUP, membership: Path = _MEMBERSHIP) -> int:
    """Cores that this process may use: its affinity, and its control groups' quota, rounded down.

    More threads than that wait for each other in the middle of an operator.

    Args:
        cgroup: folder at which Linux mounts the control groups, version 2 or 1.
        membership: file in which Linux lists the control groups of this process. In a container,
            its own group is often mounted as if it were the root, and the list names a path that is
            not there.
    """
    has_affinity = hasattr(os, "sched_getaffinity")  # Linux
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    groups = _groups("cpu", cgroup, membership)
    quotas = [quota for group in groups if (quota := _quota(group)) is not None]
    return max(1, min(cores, *map(int, quotas)) if quotas else cores)


def usable_memory(cgroup: Path = _CGROUP, membership: Path = _MEMBERSHIP) -> int:
    """Bytes that this process and its children may use: the machine's, and its groups' limit.

    Others use them too. Arguments as for `num_usable_cores`.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    groups = _groups("memory", cgroup, membership)
    return min([machine, *(limit for group in groups if (limit := _memory_limit(group)))])


def _groups(controller: str, cgroup: Path, membership: Path) -> set[Path]:
    """The control groups that limit this process: its own and their parents."""
    groups = {cgroup, cgroup / controller}
    for controllers, path in _memberships(membership):
        if controllers == "" or controller in controllers.split(","):
            root = cgroup / controller if controllers else cgroup
            groups |= {root / part for part in (path, *path.parents)}
    return groups


def _memberships(file: Path) -> list[tuple[str, PurePosixPath]]:
    """Controllers ("" in version 2) and relative paths, from lines such as "4:cpu,cpuacct:/a/b"."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    fields = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    return [(names, PurePosixPath(path.lstrip("/"))) for _, names, path in fields]


def _memory_limit(group: Path) -> int:
    """Bytes that a control group allows; 0 without a limit."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            limit = int((group / name).read_text())
        except (OSError, ValueError):  # "max" is no number
            continue
        return limit if limit < _UNLIMITED_BYTES else 0
    return 0


def _quota(group: Path) -> float | None:
    """CPU seconds a second that a control group allows; None without a limit."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota, period = (
                (group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
            )
        allowed = float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max" is no number
        return None
    return allowed if allowed > 0 else None  # -1 is no limit

"""The machine and the software of a measurement, for the head of a report."""

from __future__ import annotations

from importlib.metadata import version

from bench.load.results import about_machine


def machine(threads: int) -> dict[str, str]:
    """The machine and the versions, for the head of a report."""
    found = about_machine()
    versions = f"onnxruntime {found.get('onnxruntime')}, PyTorch {version('torch')}"
    return {
        "Machine": f"{found['processor'] or found['machine']}, {found['cpus']} CPUs, threads used: "
        f"{threads}, load average at the end: {found['load_average']:.1f}",
        "Software": f"{versions}, Python {found['python']}, "
        f"revision {found.get('revision', 'not recorded')}, {found['started_at'][:10]}",
    }

"""Runs scripts in processes with the stand-in for CUDA."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STAND_IN = os.environ.get("DRAGOMAN_STAND_IN", "")


def variables(**changed: object) -> dict[str, str]:
    """The environment of a process with the stand-in, with `changed` variables."""
    where = Path(STAND_IN).resolve()
    paths = [str(where / "site"), str(ROOT), str(ROOT / "proto")]
    return {
        "LD_LIBRARY_PATH": str(where / "lib"),
        "PYTHONPATH": os.pathsep.join(paths),
        "STAND_IN_BYTES": str(40 << 30),
        "ORT_DISABLE_TELEMETRY": "1",
        **{name: str(value) for name, value in changed.items()},
    }


def completed(
    *arguments: str | Path, given: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments, in the environment `given`, or else with the stand-in."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)], env={**os.environ, **(given or variables())},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip


def run(script: str, *arguments: str | Path, **changed: object) -> Any:
    """The output of `tests/stand_in/script`; fails if it made a call that CUDA forbids."""
    return run_with_output(script, *arguments, **changed)[0]


def run_with_output(script: str, *arguments: str | Path, **changed: object) -> tuple[Any, str]:
    """The output of the script, and the lines that ONNX Runtime printed before it."""
    done = completed(ROOT / "tests" / "stand_in" / script, *arguments, given=variables(**changed))
    assert done.returncode == 0, done.stderr
    assert "stand-in:" not in done.stderr, done.stderr
    printed, _, found = done.stdout.rstrip("\n").rpartition("\n")
    return json.loads(found), printed

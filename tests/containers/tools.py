"""Checkers of other projects, and the message if one is missing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"


def tool(name: str) -> str:
    """The path of the checker `name`.

    Without it the test is skipped, but where DRAGOMAN_REQUIRE_TOOLS is set (`make
    check-manifests`) it fails.
    """
    if found := _find(name):
        return found
    where = "Debian's package `prometheus`" if name == "promtool" else "`make check-manifests`"
    where += " (on Linux on x86-64)" if name in ("helm", "kubectl") else ""
    message = f"{name} is not installed: {where} has it"
    if os.environ.get("DRAGOMAN_REQUIRE_TOOLS"):
        pytest.fail(message)
    pytest.skip(message)


def _find(name: str) -> str | None:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which(name, path=places)


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command; returns both streams, or fails with them if the command fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout

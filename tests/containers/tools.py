"""The checkers that other projects make, and what is said where one is missing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"


# The others are packages of the extra `manifests`.
_WHERE = {
    "promtool": "Debian's package `prometheus` has it",
    "kubectl": "https://kubernetes.io/docs/tasks/tools/ has kubectl",
}


def tool(*names: str) -> str:
    """The path of the first of `names` that is installed.

    Without one the test is skipped, but where DRAGOMAN_REQUIRE_TOOLS is set (`make
    check-manifests`) it fails.
    """
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    for name in names:
        if found := shutil.which(name, path=places):
            return found
    where = next(
        (_WHERE[name] for name in names if name in _WHERE), "`make check-manifests` does it"
    )
    message = f"{' or '.join(names)} is not installed: {where}"
    if os.environ.get("DRAGOMAN_REQUIRE_TOOLS"):
        pytest.fail(message)
    pytest.skip(message)


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """What the command writes, both streams. Fails with that if the command does."""
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

"""The distributions of this checkout, and clean environments that they are installed into."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Distributions:
    """The published files of server and client: wheels, and sources to build from."""

    folder: Path
    server_wheel: Path
    server_source: Path
    client_wheel: Path
    client_source: Path


def environment() -> dict[str, str]:
    """Of a user who has nothing of this checkout on a path."""
    hidden = ("DRAGOMAN_", "PYTHON", "MAKE", "MFLAGS", "VIRTUAL_ENV")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
    return {**kept, "PIP_NO_COMPILE": "1"}  # most modules are never imported


def run(*command: str | Path, cwd: Path, timeout: float = 240) -> str:
    """Run a command; returns its output, or fails with it if the command fails."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@contextlib.contextmanager
def serving(*command: str | Path, cwd: Path) -> Iterator[str]:
    """Run a command that serves; HOST:PORT, from its log."""
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        env=environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    lines = []
    try:
        for line in process.stderr:  # of pip too
            lines.append(line)
            entry = json.loads(line) if line.startswith("{") else {}
            if entry.get("message") == "serving":
                break
        else:
            raise AssertionError("".join(lines))
        yield str(entry["address"])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 15)  # make, and the server that it started
        process.communicate(timeout=60)


def new_environment(folder: Path, *requirements: str | Path) -> Path:
    """The folder of commands of a new environment with some packages, at the locked versions."""
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    commands = folder / "bin"
    pip = (commands / "python", "-m", "pip", "install", "--quiet")
    run(*pip, "--constraint", ROOT / "constraints.txt", *requirements, cwd=folder.parent)
    return commands


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    folder = tmp_path_factory.mktemp("built")
    run("make", "release", f"DIST={folder}", "IMAGES=", cwd=ROOT)

    def one(pattern: str) -> Path:
        (path,) = folder.glob(pattern)
        return path

    return Distributions(
        folder=folder,
        server_wheel=one("dragoman-*.whl"),
        server_source=one("dragoman-*.tar.gz"),
        client_wheel=one("dragoman_client-*.whl"),
        client_source=one("dragoman_client-*.tar.gz"),
    )


@pytest.fixture(scope="session")
def installed(built: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with the server's wheel."""
    folder = tmp_path_factory.mktemp("server") / "venv"
    return new_environment(folder, built.client_wheel, f"{built.server_wheel}[cpu]")


@pytest.fixture(scope="session")
def client_alone(built: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with the client's wheel."""
    return new_environment(tmp_path_factory.mktemp("client") / "venv", built.client_wheel)

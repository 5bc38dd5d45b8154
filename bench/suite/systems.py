"""The systems under test, each a separate server process with our contract."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from bench.load.errors import LoadError
from bench.suite.artifacts import Artifacts

ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 180.0
_STOP_SECONDS = 60.0
_ACCESS = "dragoman.access"


@dataclass(frozen=True)
class System:
    """A system and its settings.

    Attributes:
        name: "dragoman", or a kind of `bench.peers.server`.
        settings: options of its command line, by name; stored with every result. A list gives an
            option several times.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{name} {value}" for name, value in self.settings.items()]
        return f"{self.name} ({', '.join(parts) or 'defaults'})"

    def command(self, artifacts: Artifacts) -> list[str]:
        """The command line of its server, on any ports."""
        ports = ["--port", "0", "--metrics-port", "0"]
        options = [
            part
            for name, value in self.settings.items()
            for one in (value if isinstance(value, list) else [value])
            for part in (f"--{name.replace('_', '-')}", str(one))
        ]
        if self.name == "dragoman":
            return ["-m", "cli.main", "serve", "--model", str(artifacts.bundle), *ports, *options]
        command = ["-m", "bench.peers.server", "--kind", self.name]
        command += ["--bundle", str(artifacts.bundle), *ports, *options]
        command += ["--converted", str(artifacts.converted)]
        if self.name == "ctranslate2":
            command += ["--compute-type", artifacts.compute_type]
        return command

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"name": self.name, "settings": dict(self.settings)}


@dataclass(frozen=True)
class Running:
    """The addresses of a server that is ready.

    Attributes:
        address: HOST:PORT.
        metrics_url: of its metrics.
    """

    address: str
    metrics_url: str


def environment(checkout: Path = ROOT) -> dict[str, str]:
    """The environment in which a process imports a checkout, by default this one."""
    places = [str(checkout), str(checkout / "proto"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


def end_in_order_on_sigterm() -> None:
    """Make SIGTERM end the benchmark and its servers, as Ctrl-C does.

    The servers are sessions of their own, so nothing else would end them.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)  # asyncio may have put its own there
        if not callable(handler):  # a shell's background job ignores Ctrl-C
            raise KeyboardInterrupt
        handler(number, frame)

    signal.signal(signal.SIGTERM, interrupt)


@contextlib.contextmanager
def running(
    system: System, artifacts: Artifacts, log: Path, checkout: Path = ROOT
) -> Iterator[Running]:
    """Run a system's server until the end of the context; its log goes to a file.

    Args:
        checkout: directory with the program's source code.

    Raises:
        LoadError: it did not come up; the message has the end of its log.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", *system.command(artifacts)],
        env=environment(checkout),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        # Ctrl-C is for the suite, which then stops the servers in order.
        start_new_session=True,
    )
    reader = _LogReader(process, log)
    try:
        if not reader.serving.wait(_START_SECONDS) or reader.started is None:
            raise LoadError(f"{system.name} did not start; its log ends: {reader.tail()}")
        started = reader.started
        yield Running(started["address"], started["metrics"])
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()


class _LogReader(threading.Thread):
    """Copies a server's log to a file and detects when it is ready or ended."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        super().__init__(name="server log", daemon=True)
        self.serving = threading.Event()
        self.started: dict[str, str] | None = None
        self._process = process
        self._log = log
        self._last: list[str] = []
        log.parent.mkdir(parents=True, exist_ok=True)
        self.start()

    def tail(self) -> str:
        """The last lines."""
        return "".join(self._last[-10:])

    def run(self) -> None:
        """Read until the server closes its log."""
        assert self._process.stderr is not None, "it was asked for"
        with self._log.open("a", encoding="utf-8") as file:
            for line in self._process.stderr:
                entry = _entry(line)
                # Access lines would be most of the log; the samples hold the same.
                if entry.get("logger") != _ACCESS:
                    file.write(line)
                self._last = [*self._last[-20:], line]
                if entry.get("message") == "serving":
                    self.started = entry
                    self.serving.set()
        self.serving.set()  # or it never will: end the wait


def _entry(line: str) -> dict[str, str]:
    """The fields of a log line; empty if it is not JSON."""
    with contextlib.suppress(json.JSONDecodeError):
        entry = json.loads(line)
        if isinstance(entry, dict):
            return entry
    return {}

"""A server in a process of its own: its environment, its start, its log and its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from bench.load.errors import LoadError

ROOT = Path(__file__).resolve().parents[1]
_START_SECONDS = 180.0
_STOP_SECONDS = 60.0
_LAST_LINES = 10


@dataclass(frozen=True)
class Running:
    """The addresses of a server that is ready.

    Attributes:
        address: address of the gRPC port, HOST:PORT.
        metrics_url: URL of its metrics.
    """

    address: str
    metrics_url: str


@dataclass(frozen=True)
class RunningProcess(Running):
    """A server that is ready, and its process.

    Attributes:
        http_url: URL of its HTTP port; empty if it has none.
    """

    http_url: str
    process: subprocess.Popen[str]


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
def server_process(
    arguments: Sequence[str],
    variables: Mapping[str, str] | None = None,
    *,
    on_line: Callable[[str], None] = lambda _: None,
    cores: Sequence[int] | None = None,
) -> Iterator[RunningProcess]:
    """Run a server from its start until the end of the context.

    Args:
        arguments: arguments of Python: a module and its options.
        variables: its environment; that of `environment` by default.
        on_line: function that is called in a thread with each line of its log.
        cores: numbers of the cores that it may use; None for all.

    Raises:
        LoadError: it did not start; the message has the end of its log.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", *arguments],
        env={
            **(environment() if variables is None else variables),
            "DRAGOMAN_LOG_LEVEL": "info",
            "DRAGOMAN_LOG_FORMAT": "json",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="backslashreplace",
        # Ctrl-C is for this process, which then stops the server in order.
        start_new_session=True,
    )
    reader = _LogReader(process, on_line)
    try:
        if cores is not None:
            os.sched_setaffinity(process.pid, cores)
        if not reader.serving.wait(_START_SECONDS) or (entry := reader.entry) is None:
            command = " ".join(arguments)
            raise LoadError(f"python {command} did not start; its log ends: {reader.tail()}")
        yield RunningProcess(entry["address"], entry["metrics"], entry.get("http", ""), process)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()


class _LogReader(threading.Thread):
    """Reads a server's log, so that the server never waits, and detects its start and its end."""

    def __init__(self, process: subprocess.Popen[str], on_line: Callable[[str], None]) -> None:
        super().__init__(name="server log", daemon=True)
        self.serving = threading.Event()
        self.entry: dict[str, str] | None = None
        self._process = process
        self._on_line = on_line
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self.start()

    def tail(self) -> str:
        """The last lines."""
        return "".join(self._last).strip()

    def run(self) -> None:
        """Read until the server closes its log."""
        assert self._process.stderr is not None, "it was asked for"
        for line in self._process.stderr:
            self._on_line(line)
            self._last.append(line)
            entry = log_entry(line)
            if entry.get("message") == "serving":
                self.entry = entry
                self.serving.set()
        self.serving.set()  # or it never will: end the wait


def log_entry(line: str) -> dict[str, str]:
    """The fields of a log line; empty if it is not JSON."""
    with contextlib.suppress(json.JSONDecodeError):
        entry = json.loads(line)
        if isinstance(entry, dict):
            return entry
    return {}

"""A server in a process of its own, which is restarted when it ends, as by a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from bench.server_process import environment
from service.observability import loop_monitor

_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.05


class SupervisedServer:
    """`dragoman serve` on fixed ports.

    Args:
        options: options of the command line, without ports.
        log: file to which standard error is appended.
        open_files: limit of open files; None for that of this process.
        log_to: descriptor for standard error instead of `log`. The caller reads it.

    Attributes:
        ends: exit status and running time in seconds of each process that has ended.
    """

    def __init__(
        self,
        options: Sequence[str],
        log: Path,
        *,
        open_files: int | None = None,
        log_to: int | None = None,
    ) -> None:
        self.port, self.http_port, self.metrics_port, self.admin_port = free_ports(4)
        self.log = log
        self.ends: list[tuple[int, float]] = []
        self._options = options
        # By a shell: code of this process between fork and exec may crash beside gRPC's threads.
        limit = f'ulimit -n {open_files}; exec "$@"'
        self._limited = [] if open_files is None else ["/bin/sh", "-c", limit, "limited"]
        self._log_to = log_to
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """HOST:PORT of gRPC."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[SupervisedServer]:
        """Run the server, and restart it when it ends, until the end of the context."""
        await self._start()
        self._supervisor = asyncio.create_task(self._supervise())
        try:
            yield self
        finally:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
            await self._stop()

    async def end_of(self, pid: int) -> int:
        """Wait until the server's process `pid` has ended; returns its exit status."""
        process = self._process
        if process is None or process.pid != pid:
            return self.ends[-1][0]
        return await process.wait()

    def lines(self) -> list[dict[str, Any]]:
        """Log entries so far."""
        if not self.log.exists():
            return []
        found = []
        for line in self.log.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # a line that is being written
                found.append(json.loads(line))
        return found

    async def _supervise(self) -> None:
        while True:
            assert self._process is not None
            started = time.monotonic()
            status = await self._process.wait()
            self.ends.append((status, time.monotonic() - started))
            await self._start()

    async def _start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "cli.main",
            "serve",
            *self._options,
            "--log-format",
            "json",
        ]
        for name in ("port", "http-port", "metrics-port", "admin-port"):
            command += [f"--{name}", str(getattr(self, name.replace("-", "_")))]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._limited,
                *command,
                env={**environment(), loop_monitor.VARIABLE: "1"},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log if self._log_to is None else self._log_to,
                # Ctrl-C is for this process, which then stops the server in order.
                start_new_session=True,
            )

    async def _stop(self) -> None:
        assert self._process is not None
        if self._process.returncode is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()


def free_ports(count: int) -> list[int]:
    """Free ports on loopback."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            found.append(int(one.getsockname()[1]))
        return found


async def eventually(is_so: Any, what: str, seconds: float = 60.0) -> float:
    """Wait until `is_so()` is true; returns the seconds that it took.

    Raises:
        TimeoutError: it is not true within `seconds`; the message names the condition.
    """
    started = time.monotonic()
    while not is_so():
        if time.monotonic() - started > seconds:
            raise TimeoutError(f"after {seconds:g} s it is not so that {what}")
        await asyncio.sleep(_LOOK_SECONDS)
    return time.monotonic() - started

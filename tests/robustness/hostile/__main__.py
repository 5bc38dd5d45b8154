"""Attacks a server, and says what it cost.

    python -m tests.robustness.hostile [ATTACK ...] [--server OPTIONS] [--terminate-after SECONDS]

Each attack of `attacks.py` goes to a fresh server of the shipped model over loopback, while other
clients translate. The result is printed as JSON: what the calls and the other clients got, blocks
of the server's event loop (`service.observability.loop_monitor`), memory, and how long the server
took to exit after SIGTERM, which it gets after the attack or in its midst. A call that its client
did not cancel must not end with CANCELLED.

Attacker and bystanders are separate processes, so that Python's lock does not couple them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.processes import descendants, status_bytes
from bench.suite.systems import ROOT, environment
from service.observability import loop_monitor
from tests.robustness.hostile.attacks import ATTACKS, send
from tests.robustness.hostile.bystanders import stand_by

_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.1


def run_attack(name: str, options: str, terminate_after: float | None) -> dict[str, Any]:
    """One attack on a fresh server, which gets SIGTERM after some seconds or after the attack."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        ports = ("--port", "0", "--metrics-port", "0", "--http-port", "0", "--log-format", "json")
        # Into a file, so that the server never waits for a reader.
        with log.open("wb") as file:
            server = subprocess.Popen(
                [sys.executable, "-m", "cli.main", "serve", *ports, *options.split()],
                cwd=ROOT,
                env={**environment(), loop_monitor.VARIABLE: "1"},
                stderr=file,
            )
        bystanders = attacker = None
        try:
            serving = _serving(log)
            http = serving["http"].rpartition("//")[2].rstrip("/")
            livez = serving["metrics"].removesuffix("metrics") + "livez"
            bystanders = _start("--bystanders", serving["address"], livez)
            assert bystanders.stdout is not None
            bystanders.stdout.readline()
            before = _mebibytes("VmRSS", server.pid)
            computed = _cpu_seconds(server.pid)
            with _Processes(server.pid) as processes:
                attacker = _start(name, "--attack", serving["address"], http)
                if terminate_after is not None:
                    time.sleep(terminate_after)
                    return {**_seconds_to_exit(server), **_blocks(log)}
                result = json.loads(attacker.communicate()[0])
                computed = _cpu_seconds(server.pid) - computed
            waited = json.loads(bystanders.communicate("")[0])
            figures = {
                "attack": result,
                "bystanders": waited,
                "server_cpu_seconds": round(computed, 1),
                "memory_before_mib": before,
                "memory_after_mib": _mebibytes("VmRSS", server.pid),
                "memory_peak_mib": _mebibytes("VmHWM", server.pid),
                "largest_process_growth_mib": processes.largest_growth >> 20,
                "log_bytes": log.stat().st_size,
            }
            return {**figures, **_seconds_to_exit(server), **_blocks(log)}
        finally:
            for process in (server, bystanders, attacker):
                if process is not None and process.poll() is None:
                    process.kill()
                    process.wait()


def _seconds_to_exit(server: subprocess.Popen[bytes]) -> dict[str, float]:
    """Terminate the server; how long that took."""
    started = time.perf_counter()
    server.terminate()
    server.wait(_STOP_SECONDS)
    return {"seconds_to_exit": round(time.perf_counter() - started, 2)}


class _Processes(threading.Thread):
    """Watches the processes that a server has started, within a `with`.

    Attributes:
        largest_growth: bytes that one of them took beyond what it had when it was first seen.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.largest_growth = 0
        self._pid = pid
        self._first: dict[int, int] = {}
        self._ended = threading.Event()

    def __enter__(self) -> _Processes:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Look at them now and then."""
        while not self._ended.wait(_LOOK_SECONDS):
            for pid in descendants(self._pid):
                with contextlib.suppress(OSError, RuntimeError):  # it has ended
                    first = self._first.setdefault(pid, status_bytes("VmRSS", pid))
                    growth = status_bytes("VmHWM", pid) - first
                    self.largest_growth = max(self.largest_growth, growth)


def _cpu_seconds(pid: int) -> float:
    """CPU time of a server and of the processes that it has started."""
    ticks = 0
    for each in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):  # it has ended
            stat = Path("/proc", str(each), "stat").read_text(encoding="utf-8")
            ticks += sum(map(int, stat.rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _mebibytes(name: str, pid: int) -> int:
    return status_bytes(name, pid) // 2**20


def _serving(log: Path) -> dict[str, Any]:
    """The log's line with the addresses, once it is there."""
    ends = time.monotonic() + _START_SECONDS
    while time.monotonic() < ends:
        for line in _lines(log):
            if line["message"] == "serving":
                return line
        time.sleep(0.1)
    raise TimeoutError("the server does not come up")


def _lines(log: Path) -> list[dict[str, Any]]:
    whole = log.read_text(encoding="utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def _blocks(log: Path) -> dict[str, Any]:
    """The blocks of the event loop: how many, and the longest."""
    found = [line for line in _lines(log) if line["message"] == loop_monitor.MESSAGE]
    longest = max(found, key=lambda line: line["seconds"], default=None)
    about = {name: longest[name] for name in ("seconds", "computing", "stack")} if longest else {}
    return {"loop_blocks": len(found), "longest_block": about}


def _start(*arguments: str) -> subprocess.Popen[str]:
    """Start this program again with all streams but standard error as pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.robustness.hostile", *arguments],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def main() -> None:
    """Run the attacks that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("attacks", nargs="*", choices=[*ATTACKS, []])
    parser.add_argument("--server", default="", help="options of `dragoman serve`")
    parser.add_argument(
        "--terminate-after", type=float, metavar="SECONDS", help="of the attack; then only the exit"
    )
    parser.add_argument("--attack", metavar="ADDRESS", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--bystanders", metavar="ADDRESS", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bystanders:
        print(json.dumps(asyncio.run(stand_by(*options.bystanders))))
        return
    if options.attack:
        (address, http), [name] = options.attack, options.attacks
        print(json.dumps(asyncio.run(send(address, http, ATTACKS[name]()))))
        return
    for name in options.attacks or ATTACKS:
        result = run_attack(name, options.server, options.terminate_after)
        print(name, json.dumps(result, indent=2), flush=True)


if __name__ == "__main__":
    main()

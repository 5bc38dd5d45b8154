"""Attacks a server, and says what it cost.

    python -m tests.robustness.hostile [ATTACK ...] [--server OPTIONS] [--terminate-after SECONDS]
        [--pause SECONDS]

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
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bench.processes import cpu_seconds, descendants, status_bytes
from bench.server_process import ROOT, environment, server_process
from service.observability import loop_monitor
from tests.robustness.hostile.attacks import ATTACKS, send
from tests.robustness.hostile.bystanders import PAUSE_SECONDS, stand_by

_STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.1


def run_attack(
    name: str, options: str, terminate_after: float | None, pause: float = PAUSE_SECONDS
) -> dict[str, Any]:
    """One attack on a fresh server, which gets SIGTERM after some seconds or after the attack."""
    ports = ("--port", "0", "--metrics-port", "0", "--http-port", "0")
    arguments = ["-m", "cli.main", "serve", *ports, *options.split()]
    log: list[str] = []
    variables = {**environment(), loop_monitor.VARIABLE: "1"}
    with (
        server_process(arguments, variables, on_line=log.append) as serving,
        contextlib.ExitStack() as ended,
    ):
        server = serving.process
        http = serving.http_url.rpartition("//")[2].rstrip("/")
        livez = serving.metrics_url.removesuffix("metrics") + "livez"
        metrics = livez.split("/")[2]
        bystanders = ended.enter_context(
            _started("--bystanders", serving.address, http, livez, "--pause", str(pause))
        )
        assert bystanders.stdout is not None
        bystanders.stdout.readline()
        before = _mebibytes("VmRSS", server.pid)
        computed = cpu_seconds(server.pid)
        with _Processes(server.pid) as processes:
            attacker = ended.enter_context(
                _started(name, "--attack", serving.address, http, metrics)
            )
            if terminate_after is None:
                result = json.loads(attacker.communicate()[0])
                computed = cpu_seconds(server.pid) - computed
                figures = {
                    "attack": result,
                    "bystanders": json.loads(bystanders.communicate("")[0]),
                    "server_cpu_seconds": round(computed, 1),
                    "memory_before_mib": before,
                    "memory_after_mib": _mebibytes("VmRSS", server.pid),
                    "memory_peak_mib": _mebibytes("VmHWM", server.pid),
                    "largest_process_growth_mib": processes.largest_growth >> 20,
                    "log_bytes": sum(len(line.encode()) for line in log),
                }
            else:
                time.sleep(terminate_after)
                figures = {}
        figures |= _seconds_to_exit(server)
    return {**figures, **_blocks(log)}


def _seconds_to_exit(server: subprocess.Popen[str]) -> dict[str, float]:
    """Terminate the server; how long that took, at most a minute."""
    started = time.perf_counter()
    server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
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


def _mebibytes(name: str, pid: int) -> int:
    return status_bytes(name, pid) // 2**20


def _blocks(log: Sequence[str]) -> dict[str, Any]:
    """The blocks of the event loop: how many, and the longest."""
    found = [line for line in map(json.loads, log) if line["message"] == loop_monitor.MESSAGE]
    longest = max(found, key=lambda line: line["seconds"], default=None)
    about = {name: longest[name] for name in ("seconds", "computing", "stack")} if longest else {}
    return {"loop_blocks": len(found), "longest_block": about}


@contextlib.contextmanager
def _started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start this program again with all streams but standard error as pipes; end it at the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.robustness.hostile", *arguments],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


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
    parser.add_argument("--attack", metavar="ADDRESS", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--bystanders", metavar="ADDRESS", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument(
        "--pause", type=float, default=PAUSE_SECONDS, help="seconds between the others' calls"
    )
    options = parser.parse_args()
    if options.bystanders:
        address, http, livez = options.bystanders
        print(json.dumps(asyncio.run(stand_by(address, http, livez, options.pause))))
        return
    if options.attack:
        addresses = dict(zip(("grpc", "http", "metrics"), options.attack, strict=True))
        [name] = options.attacks
        print(json.dumps(asyncio.run(send(addresses, ATTACKS[name]()))))
        return
    for name in options.attacks or ATTACKS:
        result = run_attack(name, options.server, options.terminate_after, options.pause)
        print(name, json.dumps(result, indent=2), flush=True)


if __name__ == "__main__":
    main()

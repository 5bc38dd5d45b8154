"""What tracing costs: pairs of servers of the shipped model, one with it and one without.

    python -m bench.tracing [--seconds 10]

Two comparisons: off against OpenTelemetry not being installed, and on (every call sampled, exported
to a receiver here) against off. Both servers run at the same time, and rounds of calls go to one
and the other in turn, so that what else the machine does falls on both. Prints for each the median
time of a call, with the median of the rounds' ratios, and processor time per call.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from dragoman import Client

ROOT = Path(__file__).resolve().parent.parent
_CALLS_A_ROUND = 20
_TEXT = "She is reading a book."
_SERVE = ("serve", "--port", "0", "--metrics-port", "0", "--in-process", "--threads", "1")
_NOT_INSTALLED = """
import sys
sys.modules["opentelemetry"] = None  # importing it raises ImportError
from cli.main import app
app()
"""


@dataclass
class MeasuredServer:
    """A server, and what its calls took.

    Attributes:
        client: of it.
        pid: of its process.
        rounds: the median time of a call in each, in seconds.
    """

    client: Client
    pid: int
    rounds: list[float] = field(default_factory=list)

    def run_round(self) -> None:
        """Make some calls, one after another."""
        times = []
        for _ in range(_CALLS_A_ROUND):
            begun = time.perf_counter()
            self.client.translate([_TEXT], source="en", target="de")
            times.append(time.perf_counter() - begun)
        self.rounds.append(statistics.median(times))


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _receiver() -> Iterator[str]:
    """A receiver of OTLP that reads nothing; its address."""

    class Everything(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")

    server = grpc.server(ThreadPoolExecutor(1), handlers=[Everything()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def _served(*command: str, **variables: str) -> Iterator[MeasuredServer]:
    """A server that Python's arguments start, once it serves."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DRAGOMAN_")}
    process = subprocess.Popen(
        [sys.executable, *command, "--log-format", "json"],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proto'}", **variables},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    drain = None
    try:
        entries = map(json.loads, process.stderr)
        address = next(entry["address"] for entry in entries if entry["message"] == "serving")
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        with Client(address, timeout=60) as client:
            yield MeasuredServer(client, process.pid)
    finally:
        process.terminate()
        process.wait()
        if drain is not None:
            drain.wait()


def compare(first: MeasuredServer, second: MeasuredServer, seconds: float) -> str:
    """Run rounds on both in turn; the figures of both, and the second's as ratios, in a line."""
    both = [first, second]
    for server in both:
        server.run_round()  # warm
        server.rounds.clear()
    before = [_processor_seconds(server.pid) for server in both]
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for server in both:
            server.run_round()
        both.reverse()
    spent = [
        _processor_seconds(server.pid) - start
        for server, start in zip((first, second), before, strict=True)
    ]
    num_calls = _CALLS_A_ROUND * len(first.rounds)
    medians = [statistics.median(server.rounds) for server in (first, second)]
    ratios = [b / a for a, b in zip(first.rounds, second.rounds, strict=True)]
    shown, processor = (
        " and ".join(f"{1000 * value:.2f}" for value in values)
        for values in (medians, [each / num_calls for each in spent])
    )
    return (
        f"{num_calls} calls each; a call took {shown} ms, ratio {statistics.median(ratios):.3f} "
        f"(rounds {min(ratios):.2f} to {max(ratios):.2f}); processor {processor} ms, "
        f"ratio {spent[1] / spent[0]:.3f}"
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each comparison")
    options = parser.parse_args()
    usual = ("-m", "cli.main", *_SERVE)
    with _served("-c", _NOT_INSTALLED, *_SERVE) as without, _served(*usual) as off:
        print("not installed, then off:", compare(without, off, options.seconds))
    with (
        _receiver() as address,
        _served(*usual) as off,
        _served(*usual, "--tracing", OTEL_EXPORTER_OTLP_ENDPOINT=address) as on,
    ):
        print("off, then on:", compare(off, on, options.seconds))


if __name__ == "__main__":
    main()

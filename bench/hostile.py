"""The cost of hostile calls: memory, latency of another client, wrong answers.

    python -m bench.hostile [refused] [empty-pairs] [burst] [burst-50] [undecodable]

Each scenario starts the server of the shipped model, attacks it over loopback, and prints the
result as JSON:

- refused: calls with a text over the limit; memory after them must be that before them.
- empty-pairs: `Score` calls full of empty pairs, eight at a time, while another client translates.
- burst: thousands of calls at once on one connection, while another client translates. A call that
  its client did not cancel must not end with CANCELLED.
- burst-50: the same over fifty connections.
- undecodable: messages that are not protobuf.

Attacker and bystander are separate processes, so that Python's lock does not couple them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from bench.suite.systems import ROOT, environment
from dragoman.v1 import translation_pb2 as pb

SCENARIOS = ("refused", "empty-pairs", "burst", "burst-50", "undecodable")
_SERVICE = "/dragoman.v1.TranslationService/"
_MEBIBYTE = 2**20


@dataclass(frozen=True)
class Attack:
    """Calls of one method with the same message.

    Attributes:
        method: of the service.
        message: serialized.
        count: calls in all.
        at_once: most calls in progress.
        connections: over which the calls go in turn.
    """

    method: str
    message: bytes
    count: int
    at_once: int
    connections: int = 1


def attack_of(scenario: str, max_message_bytes: int) -> Attack:
    """The calls of a scenario; messages are as large as the server accepts."""
    most = max_message_bytes - 1024
    if scenario == "refused":
        request = _request("a" * most)
        return Attack("Translate", request, 1000, 4)
    if scenario == "empty-pairs":
        return Attack("Score", b"\x0a\x00" * (most // 2), 16, 8)
    if scenario == "undecodable":
        return Attack("Translate", b"\xff" * 100, 1000, 16)
    connections = 1 if scenario == "burst" else 50
    return Attack("Translate", _request("A dog is running."), 10_000, 10_000, connections)


def _request(text: str) -> bytes:
    return pb.TranslateRequest(contents=[text]).SerializeToString()


async def send(address: str, attack: Attack) -> dict[str, Any]:
    """Send the calls; counts of status codes and of retry hints."""
    codes: Counter[str] = Counter()
    hints = 0
    places = asyncio.Semaphore(attack.at_once)
    async with contextlib.AsyncExitStack() as channels:
        calls: list[Any] = []
        for number in range(attack.connections):
            # The number keeps gRPC from sharing one connection among the channels.
            options = [("grpc.max_send_message_length", -1), ("dragoman.connection", number)]
            channel = grpc.aio.insecure_channel(address, options=options)
            await channels.enter_async_context(channel)
            await channel.channel_ready()
            calls.append(channel.unary_unary(_SERVICE + attack.method))

        async def send_one(number: int) -> None:
            nonlocal hints
            async with places:
                try:
                    await calls[number % len(calls)](attack.message, timeout=120)
                    codes["OK"] += 1
                except grpc.aio.AioRpcError as exc:
                    codes[exc.code().name] += 1
                    metadata = exc.trailing_metadata() or ()
                    hints += any(key == "grpc-retry-pushback-ms" for key, _ in metadata)

        started = time.perf_counter()
        await asyncio.gather(*(send_one(number) for number in range(attack.count)))
        seconds = time.perf_counter() - started
    return {"codes": dict(codes), "retry_hints": hints, "seconds": round(seconds, 2)}


async def stand_by(address: str) -> dict[str, Any]:
    """Translate one sentence after another until standard input ends; the latencies."""
    request = _request("Good morning.")
    codes: Counter[str] = Counter()
    waits: list[float] = []
    async with grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.unary_unary(_SERVICE + "Translate")
        ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        while not ended.done():
            started = time.perf_counter()
            try:
                await call(request, timeout=120, metadata=[("x-client-id", "bystander")])
                codes["OK"] += 1
            except grpc.aio.AioRpcError as exc:
                codes[exc.code().name] += 1
            waits.append(time.perf_counter() - started)
            if len(waits) == 1:
                print("ready", flush=True)
            await asyncio.sleep(0.02)
    waits.sort()
    return {
        "codes": dict(codes),
        "median_seconds": round(waits[len(waits) // 2], 3),
        "longest_seconds": round(waits[-1], 3),
    }


def resident_mebibytes(pid: int) -> float:
    """Resident memory of one process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * 4096 / _MEBIBYTE


def peak_mebibytes(pid: int) -> float:
    """The most resident memory that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    [line] = [line for line in lines if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def run_scenario(scenario: str, message_bytes: int, options: str) -> dict[str, Any]:
    """One scenario against a fresh server."""
    server = _start("cli.main", "serve", "--port", "0", "--metrics-port", "0", *options.split())
    assert server.stderr is not None
    bystander = None
    try:
        for line in server.stderr:
            entry = json.loads(line)
            if entry["message"] == "serving":
                break
        address = entry["address"]
        log = subprocess.Popen(  # reads the log, so that the server never waits for a reader
            ["wc", "-c"], stdin=server.stderr, stdout=subprocess.PIPE, text=True
        )
        bystander = _start("bench.hostile", "--bystander", address)
        assert bystander.stdout is not None
        bystander.stdout.readline()
        before = resident_mebibytes(server.pid)
        attacker = _start(
            "bench.hostile", scenario, "--attack", address, "--message-bytes", str(message_bytes)
        )
        result = json.loads(attacker.communicate()[0])
        waited = json.loads(bystander.communicate("")[0])
        figures = {
            "attack": result,
            "bystander": waited,
            "memory_before_mib": round(before),
            "memory_after_mib": round(resident_mebibytes(server.pid)),
            "memory_peak_mib": round(peak_mebibytes(server.pid)),
        }
        server.terminate()
        server.wait()
        figures["log_bytes"] = int(log.communicate()[0])
        return figures
    finally:
        for process in (server, bystander):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def _start(*arguments: str) -> subprocess.Popen[str]:
    """Start a module of this checkout with all streams as pipes (standard error: the server's)."""
    is_server = arguments[0] == "cli.main"
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if is_server else None,
        text=True,
    )


def main() -> None:
    """Run the scenarios that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []])
    parser.add_argument("--message-bytes", type=int, default=4_100_000, help="of large messages")
    parser.add_argument("--server", default="", help="options of `dragoman serve`")
    parser.add_argument("--attack", metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.add_argument("--bystander", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bystander:
        print(json.dumps(asyncio.run(stand_by(options.bystander))))
        return
    if options.attack:
        [scenario] = options.scenarios
        attack = attack_of(scenario, options.message_bytes)
        print(json.dumps(asyncio.run(send(options.attack, attack))))
        return
    for scenario in options.scenarios or SCENARIOS:
        print(
            scenario,
            json.dumps(run_scenario(scenario, options.message_bytes, options.server), indent=2),
        )


if __name__ == "__main__":
    main()

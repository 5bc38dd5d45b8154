"""Other clients during an attack: each translates a sentence periodically; a probe watches."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from typing import Any

import grpc

from dragoman.v1 import translation_pb2 as pb

NUM_CLIENTS = 16
PAUSE_SECONDS = 0.25
_NUM_HTTP_CLIENTS = 4
_PROBE_SECONDS = 0.5
_TIMEOUT_SECONDS = 60.0
_METHOD = "/dragoman.v1.TranslationService/Translate"


async def stand_by(address: str, http: str, livez: str, pause: float) -> dict[str, Any]:
    """Translate until standard input ends; returns latencies and the number of failed probes.

    Args:
        pause: seconds between an answer and the next call over gRPC.
    """
    codes: Counter[str] = Counter()
    waits: list[float] = []
    http_codes: Counter[str] = Counter()
    http_waits: list[float] = []
    probes: list[tuple[float, bool]] = []
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    began = time.perf_counter()

    async def translate(number: int) -> None:
        options = [("dragoman.connection", number)]
        request = pb.TranslateRequest(contents=["Good morning."]).SerializeToString()
        metadata = [("x-client-id", f"bystander-{number}")]
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            call: Any = channel.unary_unary(_METHOD)
            await asyncio.sleep(number * PAUSE_SECONDS / NUM_CLIENTS)
            while not ended.done():
                started = time.perf_counter()
                try:
                    await call(request, timeout=_TIMEOUT_SECONDS, metadata=metadata)
                    codes["OK"] += 1
                except grpc.aio.AioRpcError as exc:
                    codes[exc.code().name] += 1
                waits.append(time.perf_counter() - started)
                if len(waits) == NUM_CLIENTS:
                    print("ready", flush=True)
                await asyncio.sleep(pause)

    async def translate_over_http(number: int) -> None:
        await asyncio.sleep(number * PAUSE_SECONDS / _NUM_HTTP_CLIENTS)
        while not ended.done():
            started = time.perf_counter()
            url = f"http://{http}/v1/translate"
            http_codes[await asyncio.to_thread(_translated, url, f"http-bystander-{number}")] += 1
            http_waits.append(time.perf_counter() - started)
            await asyncio.sleep(PAUSE_SECONDS)

    async def probe() -> None:
        while not ended.done():
            started = time.perf_counter()
            is_live = await asyncio.to_thread(_is_live, livez)
            probes.append((time.perf_counter() - started, is_live))
            await asyncio.sleep(_PROBE_SECONDS)

    await asyncio.gather(
        probe(),
        *(translate(number) for number in range(NUM_CLIENTS)),
        *(translate_over_http(number) for number in range(_NUM_HTTP_CLIENTS)),
    )
    waits.sort()
    http_waits.sort()
    return {
        "codes": dict(codes),
        "answers_per_second": round(codes["OK"] / (time.perf_counter() - began), 1),
        "median_seconds": round(waits[len(waits) // 2], 3),
        "p99_seconds": round(waits[int(len(waits) * 0.99)], 3),
        "longest_seconds": round(waits[-1], 3),
        "http_codes": dict(http_codes),
        "http_p99_seconds": round(http_waits[int(len(http_waits) * 0.99)], 3),
        "failed_probes": sum(not is_live for _, is_live in probes),
        "longest_probe_seconds": round(max(seconds for seconds, _ in probes), 3),
    }


def _translated(url: str, client: str) -> str:
    """Translate a sentence over HTTP, on a connection of its own; returns the outcome."""
    body = json.dumps({"contents": ["Good morning."]}).encode()
    headers = {"content-type": "application/json", "x-client-id": client}
    try:
        request = urllib.request.Request(url, body, headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
            return str(response.status)
    except urllib.error.HTTPError as exc:
        return str(exc.code)
    except OSError as exc:
        return type(exc).__name__


def _is_live(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False

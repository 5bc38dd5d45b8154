"""Over gRPC: a server as a process of its own, and unary requests of many texts."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.gpu.models import MeasuredModel
from bench.gpu.plan import GpuPlan
from bench.gpu.results import PointLog


def measure(model: MeasuredModel, device: str, plan: GpuPlan, results: PointLog, log: Path) -> None:
    """Keep calls of several texts in flight from threads of another process."""
    point = {
        "model": model.name, "calls": plan.grpc_calls, "texts_per_call": plan.texts_per_call
    }  # fmt: skip
    if not results.wants(**point):
        return
    from bench.suite.artifacts import Artifacts
    from bench.suite.systems import System, running

    nothing = Path()
    artifacts = Artifacts(model.name, "fp16", model.bundle.path, nothing, nothing)
    system = System(
        "dragoman", {"device": device, "max_rows": 2 * plan.grpc_calls * plan.texts_per_call}
    )
    with running(system, artifacts, log) as server:
        results.add(**point, **_measure(model, plan, server.address))


def _measure(model: MeasuredModel, plan: GpuPlan, address: str) -> dict[str, float]:
    from dragoman.client import Client

    lock = threading.Lock()
    latencies: list[float] = []
    counted = {"texts": 0, "tokens": 0}
    texts = model.texts

    def user(number: int, end: float) -> None:
        at = number * plan.texts_per_call
        with Client(address) as client:
            while time.monotonic() < end:
                some = [texts[(at + i) % len(texts)] for i in range(plan.texts_per_call)]
                at += plan.grpc_calls * plan.texts_per_call
                start = time.monotonic()
                answer = client.translate(some, timeout=120.0)
                with lock:
                    latencies.append(time.monotonic() - start)
                    counted["texts"] += len(some)
                    for translation in answer.translations:
                        if translation.error is not None:
                            raise translation.error
                        # One more for the end of sentence, which takes a step, too.
                        counted["tokens"] += translation.num_target_tokens + 1

    def run(seconds: float) -> float:
        end = time.monotonic() + seconds
        start = time.monotonic()
        with ThreadPoolExecutor(plan.grpc_calls) as threads:
            for future in [threads.submit(user, n, end) for n in range(plan.grpc_calls)]:
                future.result()
        return time.monotonic() - start

    run(min(1.0, plan.seconds))  # to warm up
    latencies.clear()
    counted.update(texts=0, tokens=0)
    seconds = run(plan.seconds)
    latencies.sort()
    return {
        "seconds": seconds,
        "texts_per_second": counted["texts"] / seconds,
        "tokens_per_second": counted["tokens"] / seconds,
        "latency_ms_p50": 1e3 * latencies[len(latencies) // 2],
        "latency_ms_p99": 1e3 * latencies[min(len(latencies) - 1, int(0.99 * len(latencies)))],
    }

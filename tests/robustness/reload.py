"""Latency and failures of a steady load while the model is replaced repeatedly.

    python -m tests.robustness.reload [--bundle DIR] [--other DIR] [--rate 5] [--reloads 5]

Open-loop load at a fixed rate, without retries; latency counts from the scheduled send time. A call
counts as sent during a reload if one was in progress when it was due: from `dragoman reload` until
the new version has taken over. The versions are read from a copy of each bundle, which stands in
turn where the server looks.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np

from bench.load.source import read_texts
from bench.suite.artifacts import Artifacts
from bench.suite.points import OWN
from bench.suite.systems import ROOT, System, end_in_order_on_sigterm, running
from dragoman.v1 import admin_pb2, admin_pb2_grpc
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.integration.replacing import put

SHIPPED = ROOT / "model" / "pretrained" / "en-de"
TEXTS = ROOT / "docker" / "load.en.txt"
STEADY_SECONDS = 10.0  # before the first reload, and between two
_TIMEOUT_SECONDS = 60.0


@dataclass
class CallSeconds:
    """Calls of one kind.

    Attributes:
        seconds: latencies of the answered calls, from their scheduled times.
        failures: number of the other calls, by gRPC code.
    """

    seconds: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    def line(self, name: str) -> str:
        """A row of the table: milliseconds at percentiles, and failures."""
        percentiles = [50, 90, 99, 100]
        figures: list[float] = []
        if self.seconds:
            figures = [float(value) * 1e3 for value in np.percentile(self.seconds, percentiles)]
        failed = ", ".join(f"{count} {code}" for code, count in self.failures.items()) or "none"
        columns = " | ".join([f"{figure:.1f}" for figure in figures] or ["-" for _ in percentiles])
        return f"| {name} | {len(self.seconds) + self.failures.total()} | {columns} | {failed} |"


class ReloadBenchmark:
    """A steady load on one server while its model is replaced.

    Args:
        rate: calls per second.
        texts: texts to send in turn, one in each call.
    """

    def __init__(self, rate: float, texts: list[str]) -> None:
        self.steady, self.during = CallSeconds(), CallSeconds()
        self.reload_seconds: list[float] = []
        self._rate = rate
        self._texts = texts
        self._is_reloading = False
        self._is_over = asyncio.Event()

    async def run(
        self, server: str, admin: str, live: Path, versions: list[Path], count: int
    ) -> None:
        """Replace the model `count` times under load."""
        options = [("grpc.enable_retries", 0)]
        async with grpc.aio.insecure_channel(server, options=options) as channel:
            sending = asyncio.create_task(self._send_all(TranslationServiceStub(channel)))
            async with grpc.aio.insecure_channel(admin) as admin_channel:
                stub = admin_pb2_grpc.AdminServiceStub(admin_channel)
                for number in range(1, count + 1):
                    await asyncio.sleep(STEADY_SECONDS)
                    await asyncio.to_thread(put, versions[number % 2], live)
                    await self._reload(stub)
                await asyncio.sleep(STEADY_SECONDS)
            self._is_over.set()
            await sending

    async def _reload(self, stub: admin_pb2_grpc.AdminServiceStub) -> None:
        clock = asyncio.get_running_loop().time
        started, self._is_reloading = clock(), True
        response = await stub.ReloadModel(admin_pb2.ReloadModelRequest())  # type: ignore[misc]
        self._is_reloading = False
        self.reload_seconds.append(clock() - started)
        assert all(model.was_replaced for model in response.models), "the bundles are equal"

    async def _send_all(self, stub: TranslationServiceStub) -> None:
        clock = asyncio.get_running_loop().time
        started = clock()
        async with asyncio.TaskGroup() as group:
            number = 0
            while not self._is_over.is_set():
                due = started + number / self._rate
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await self._is_over.wait()
                calls = self.during if self._is_reloading else self.steady
                text = self._texts[number % len(self._texts)]
                group.create_task(self._send(stub, text, due, calls))
                number += 1

    async def _send(
        self, stub: TranslationServiceStub, text: str, due: float, calls: CallSeconds
    ) -> None:
        request = pb.TranslateRequest(contents=[text])
        try:
            await stub.Translate(request, timeout=_TIMEOUT_SECONDS)  # type: ignore[misc]
        except grpc.aio.AioRpcError as exc:
            calls.failures[exc.code().name] += 1
        else:
            calls.seconds.append(asyncio.get_running_loop().time() - due)

    def report(self) -> str:
        """The figures as a table."""
        seconds = ", ".join(f"{each:.1f}" for each in self.reload_seconds)
        return "\n".join(
            [
                f"{self._rate:g} calls a second, {len(self.reload_seconds)} reloads, which took "
                f"{seconds} s",
                "",
                "| calls sent | calls | p50 ms | p90 ms | p99 ms | max ms | failures |",
                "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
                self.steady.line("between reloads"),
                self.during.line("during a reload"),
            ]
        )


def with_version(bundle: Path, version: str, copy: Path) -> Path:
    """A copy of a bundle with another version in its manifest."""
    shutil.copytree(bundle, copy)
    manifest = copy / "bundle.json"
    fields = {**json.loads(manifest.read_text(encoding="utf-8")), "version": version}
    manifest.write_text(json.dumps(fields), encoding="utf-8")
    return copy


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, default=SHIPPED)
    parser.add_argument("--other", type=Path, help="another version; by default the same weights")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="one a line")
    parser.add_argument("--rate", type=float, default=5.0, help="calls a second")
    parser.add_argument("--reloads", type=int, default=5)
    arguments = parser.parse_args()
    end_in_order_on_sigterm()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        admin_port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        folder, live = Path(name), Path(name) / "live"
        versions = [
            with_version(bundle, str(number), folder / f"version-{number}")
            for number, bundle in enumerate([arguments.bundle, arguments.other or arguments.bundle])
        ]
        put(versions[0], live)
        artifacts = Artifacts(live.name, "", live, live, live)  # of which only ours is served
        benchmark = ReloadBenchmark(arguments.rate, read_texts(arguments.texts))
        system = System(OWN, {"admin_port": admin_port})
        with running(system, artifacts, folder / "server.log") as server:
            admin = f"127.0.0.1:{admin_port}"
            work = benchmark.run(server.address, admin, live, versions, arguments.reloads)
            asyncio.run(work)
    print(f"{os.cpu_count()} cores; {arguments.bundle}")
    print(benchmark.report())


if __name__ == "__main__":
    main()

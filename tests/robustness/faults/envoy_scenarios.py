"""A replica killed behind Envoy, with the configuration in docker/: no unary call is lost."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.robustness.envoy import local_configuration, running_command
from tests.robustness.faults.load import FaultLoad, Place
from tests.robustness.faults.round import FaultRound, Scenario, nothing, until_ready
from tests.robustness.faults.supervised import SupervisedServer, eventually


def envoy_program() -> str | None:
    """Envoy's path, beside this interpreter or on PATH."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which("envoy", path=places)


async def kill_replica(played: FaultRound) -> None:
    """One of two replicas is killed, and started again."""
    other = SupervisedServer(["--model", str(played.live)], played.folder / "other.log")
    async with other.running():
        await until_ready(Place(other.address))
        async with _envoy(played.folder, [played.server.port, other.port]) as address:
            load = FaultLoad(Place(address), played.account, 1, ("unary",) * 4)
            async with load.running():
                await load.calls(20)
                await played.some_time(0.0, 0.5)
                killed = other.pid
                os.kill(killed, signal.SIGKILL)
                await other.end_of(killed)
                await load.calls(20)
                await until_ready(Place(other.address))
                await load.calls(20)


@asynccontextmanager
async def _envoy(folder: Path, ports: list[int]) -> AsyncIterator[str]:
    program = envoy_program()
    assert program is not None, "envoy is not installed"
    configuration, admin = folder / "envoy.yaml", folder / "envoy.admin"
    configuration.write_text(local_configuration(ports, "1s"), encoding="utf-8")

    def ask(path: str) -> Any:
        with urllib.request.urlopen(f"http://{admin.read_text()}{path}", timeout=10) as response:
            return json.load(response)

    with (
        (folder / "envoy.log").open("w") as log,
        subprocess.Popen(
            running_command(program, configuration, admin), stdout=log, stderr=log
        ) as process,
    ):
        try:
            await eventually(lambda: admin.exists() and admin.read_text(), "Envoy runs")
            listeners = await asyncio.to_thread(ask, "/listeners?format=json")
            [place] = [
                item["local_address"]["socket_address"]
                for item in listeners["listener_statuses"]
                if item["name"] == "translation"
            ]
            address = f"{place['address']}:{place['port_value']}"
            await until_ready(Place(address))
            yield address
        finally:
            process.terminate()


ENVOY_SCENARIOS = (
    Scenario(
        "replica-killed-behind-envoy",
        "one of two replicas behind Envoy is killed; unary calls",
        kill_replica,
        nothing,
        lost=False,
    ),
)

"""A replica killed behind Envoy, with the configuration in docker/: no unary call is lost."""

from __future__ import annotations

import os
import signal

from tests.robustness.envoy import envoy_program, running_envoy
from tests.robustness.faults.load import FaultLoad, Place
from tests.robustness.faults.round import FaultRound, Scenario, nothing, until_ready
from tests.robustness.faults.supervised import SupervisedServer


async def kill_replica(played: FaultRound) -> None:
    """One of two replicas is killed, and started again."""
    program = envoy_program()
    assert program is not None, "envoy is not installed"
    other = SupervisedServer(["--model", str(played.live)], played.folder / "other.log")
    async with other.running():
        await until_ready(Place(other.address))
        ports = [played.server.port, other.port]
        with running_envoy(program, played.folder, ports, "1s") as envoy:
            load = FaultLoad(Place(envoy.address), played.account, 1, ("unary",) * 4)
            async with load.running():
                await load.calls(20)
                await played.some_time(0.0, 0.5)
                killed = other.pid
                os.kill(killed, signal.SIGKILL)
                await other.end_of(killed)
                await load.calls(20)
                await until_ready(Place(other.address))
                await load.calls(20)


ENVOY_SCENARIOS = (
    Scenario(
        "replica-killed-behind-envoy",
        "one of two replicas behind Envoy is killed; unary calls",
        kill_replica,
        nothing,
        lost=False,
    ),
)

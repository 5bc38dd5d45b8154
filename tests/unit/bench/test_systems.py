"""The end of a benchmark, for any reason, ends the servers that it started."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from bench.server_process import environment

PREPARE = """
import signal
{sigint}
from bench.server_process import end_in_order_on_sigterm
end_in_order_on_sigterm()
def ready():
    print("ready", flush=True)
"""
# Uses of `running` in a plain program, and with a load in an event loop.
PLAIN = """
try:
    ready()
    while True:
        signal.pause()
finally:
    print("servers are ended")
"""
IN_A_LOOP = """
import asyncio
async def load():
    asyncio.get_running_loop().call_soon(ready)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        print("the load is ended")
        raise
try:
    asyncio.run(load())
finally:
    print("servers are ended")
"""


@pytest.mark.parametrize("sigint", ["", "signal.signal(signal.SIGINT, signal.SIG_IGN)"])
@pytest.mark.parametrize("program", [PLAIN, IN_A_LOOP])
def test_sigterm_ends_in_order_even_where_ctrl_c_is_ignored(sigint: str, program: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PREPARE.format(sigint=sigint) + program],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    loop = program is IN_A_LOOP
    assert out.splitlines() == ["the load is ended"] * loop + ["servers are ended"], err
    assert err.rstrip().endswith("KeyboardInterrupt")

"""A model is opened and reloaded on a GPU with others, while those continue to serve."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from service.runtime.batch_sizes import BatchSizeBuckets
from service.runtime.cuda.step import CAPTURED_TOP_K
from tests.factories import tiny_bundle
from tests.integration.replacing import SteadyLoad, change, put
from tests.integration.servers import server_process
from tests.stand_in.running import run, variables
from tests.stand_in.two_models import ROWS


def test_captures_and_what_serves_do_not_disturb_each_other(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", precision="fp16")
    found = run("two_models.py", bundle.path)
    graphs = len(BatchSizeBuckets(ROWS).sizes) * len(CAPTURED_TOP_K)
    assert found == {"captures": True, "served": True, "captured": [graphs, graphs]}


@pytest.mark.parametrize("in_flight", [2, 0])
async def test_a_model_on_a_gpu_is_replaced_while_it_serves(tmp_path: Path, in_flight: int) -> None:
    """Each version has the same number of rows, also after a refused one: no memory leaks."""
    live = tmp_path / "live"
    for number in range(1, 5):
        version = tiny_bundle(
            tmp_path / str(number), precision="fp16", name="tiny", seed=number, d_model=128,
            max_positions=256,
        )  # fmt: skip
        change(version.path, version=str(number))
    change(tmp_path / "3", languages={"source": "en", "target": "fr"})  # refused once it is open
    put(tmp_path / "1", live)
    options = ("--model", live, "--device", "cuda", "--steps-in-flight", str(in_flight))
    few = variables(STAND_IN_BYTES=1 << 30)
    async with server_process(*options, variables=few) as server:
        async with SteadyLoad.on(server.address) as load:
            await load.next_phase()
            for number in range(2, 5):
                put(tmp_path / str(number), live)
                server.process.send_signal(signal.SIGHUP)
                await server.read_log_until("not reloaded" if number == 3 else "reloaded")
                await load.next_phase()
        server.terminate()
        assert await server.end() == 0
    rows = [entry["rows"] for entry in server.log if entry["message"] == "device ready"]
    assert len(rows) == 4
    assert rows == [rows[0]] * 4
    assert rows[0] < 512
    # Every line of the log is the server's: nothing that CUDA forbids was called.
    [refused] = [entry for entry in server.log if entry["level"] not in ("info", "warning")]
    assert "does not translate" in refused["error"]

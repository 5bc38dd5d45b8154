"""`dragoman plan` with a real server of a tiny model."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cli.plan.replica import MeasuredReplica
from tests.factories import SENTENCES, tiny_bundle
from tests.integration.servers import dragoman


async def test_a_model_is_measured_and_planned_for(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundles" / "tiny")
    texts, stored = tmp_path / "texts.txt", tmp_path / "replica.json"
    texts.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    process = await dragoman(
        *("plan", "--rate", "50", "--p99", "60s", "--price", "0.05/core-hour"),
        *("--texts", texts, "--measure", bundle.path, "--cores", "1"),
        *("--seconds", "2", "--output", stored),
        **pipes,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    replica = MeasuredReplica.read(stored)
    assert replica.cores == 1
    assert replica.model
    assert replica.memory_bytes > 2**20
    assert replica.step_base + replica.step_row > 0
    assert len(replica.lengths) >= 5  # at least one call of each closed loop
    table = output.decode()
    assert all(name in table for name in ("steady", "rolling", "zone lost", "an hour"))
    assert "2 replicas keep p99 within 60 s" in table  # so that one is left

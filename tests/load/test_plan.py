"""`dragoman plan` with a real server of a tiny model."""

from __future__ import annotations

from pathlib import Path

from cli.plan.replica import MeasuredReplica
from tests.factories import SENTENCES, tiny_bundle
from tests.integration.servers import done


async def test_a_model_is_measured_and_planned_for(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundles" / "tiny")
    texts, stored = tmp_path / "texts.txt", tmp_path / "replica.json"
    texts.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    status, table, errors = await done(
        *("plan", "--rate", "50", "--p99", "60s", "--price", "0.05/core-hour"),
        *("--texts", texts, "--measure", bundle.path, "--cores", "1"),
        *("--seconds", "2", "--output", stored),
    )
    assert status == 0, errors
    replica = MeasuredReplica.read(stored)
    assert replica.cores == 1
    assert replica.model
    assert replica.memory_bytes > 2**20
    assert replica.step_base + replica.step_row > 0
    assert len(replica.lengths) >= 5  # at least one call of each closed loop
    assert all(name in table for name in ("steady", "rolling", "zone lost", "an hour"))
    assert "2 replicas keep p99 within 60 s" in table  # so that one is left


async def test_a_model_that_cannot_be_served_is_said_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_text("{}")
    texts = tmp_path / "texts.txt"
    texts.write_text("A dog runs.\n")
    status, _, errors = await done("plan", "--texts", texts, "--measure", tmp_path)
    assert status == 1
    assert "did not start" in errors
    assert "format version" in errors

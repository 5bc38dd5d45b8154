"""The measured replica: its file, and its fit to closed loops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.plan.measurement import LoopFigures, fit
from cli.plan.replica import FORMAT, MeasuredReplica, ReplicaError
from tests.unit.cli.plan.replicas import USUAL, usual


def test_a_file_holds_everything(tmp_path: Path) -> None:
    path = tmp_path / "replica.json"
    replica = usual(encodes_beside_from_rows=5, cores=2)
    replica.write(path)
    assert MeasuredReplica.read(path) == replica


def stored(**changes: object) -> str:
    fields = {name: getattr(USUAL, name) for name in MeasuredReplica.__dataclass_fields__}
    return json.dumps({"format": FORMAT, **fields, **changes})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a replica"),
        (stored(format="other"), "is not a replica"),
        (stored(extra=1), "unknown field extra"),
        (stored(cores=0), "cores must be above 0, not 0"),
        (stored(step_row=-1), "step_row must not be negative, not -1"),
        (stored(step_row=None), "lacks a field, or has a wrong one"),
        (stored(lengths=[]), "lengths must have"),
        (stored(lengths=[[1, 0]]), "lengths must have"),
        (stored(lengths=[[1]]), "lacks a field, or has a wrong one"),
        (stored(step_base=0, step_row=0), "step_base and step_row are both 0"),
        (json.dumps({"format": FORMAT, "lengths": [[1, 1]]}), "lacks a field"),
    ],
)
def test_a_wrong_file_is_named_with_the_reason(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "replica.json"
    path.write_text(content)
    with pytest.raises(ReplicaError, match=message) as caught:
        MeasuredReplica.read(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReplicaError, match=r"none\.json: No such file"):
        MeasuredReplica.read(tmp_path / "none.json")


def test_other_texts_have_lengths_by_their_characters() -> None:
    replica = usual(lengths=((10, 20),), tokens_per_character=0.5)
    assert replica.with_texts(["a" * 8, "a"]).lengths == ((4, 8), (1, 2))


def loops_of(replica: MeasuredReplica, other: float) -> list[LoopFigures]:
    """Figures that a server with these durations has."""
    loops = []
    source, steps = 14, 15
    for users in (1, 2, 4, 16, 64):
        encodes = 1 / users**0.4
        step = replica.step_seconds(users)
        encode = replica.encode_seconds(source / encodes)
        cpu = replica.call_seconds + steps / users * step + encodes * encode
        alone = replica.call_seconds + encode + steps * step + other
        loops.append(
            LoopFigures(
                model="en-de",
                rate=1.0,
                answered=[(alone, source, steps)] * 100,
                cpu=cpu,
                server_cpu=cpu if replica.cores == 1 else replica.call_seconds,
                steps=steps / users,
                encodes=encodes,
                rows=users,
                tokens=source,
                step=step,
                encode=encode,
            )
        )
    return loops


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_the_durations_are_found_again(cores: int) -> None:
    replica = usual(cores=cores, encodes_beside_from_rows=5 if cores == 2 else None)
    found = fit(
        loops_of(replica, 2e-3),
        model=replica.model,
        cores=cores,
        memory_bytes=replica.memory_bytes,
        max_rows=replica.max_rows,
        lengths=replica.lengths,
        tokens_per_character=0.25,
    )
    for name in ("step_base", "step_row", "encode_base", "encode_token", "call_seconds"):
        assert getattr(found, name) == pytest.approx(getattr(replica, name), rel=0.01), name
    assert found.other_seconds == pytest.approx(2e-3, rel=0.01)
    assert found.encodes_beside_from_rows == replica.encodes_beside_from_rows
    assert found.capacity() == pytest.approx(replica.capacity(), rel=0.01)

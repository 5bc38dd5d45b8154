"""Weights that were packed into a file for several processes: the same bits, and none missing."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings
from service.domain.plan import StepOutput
from service.runtime.cpu.runner import OnnxRunner
from tests.factories import random_shortlist, random_sources, tiny_bundle
from tests.runner_loops import greedy_steps, same_steps

NUM_ROWS, NUM_STEPS = 5, 8
WIDE: dict[str, Any] = {"d_model": 128, "ffn_dim": 512}  # so that most weights are packed


def steps_of(bundle: Bundle, settings: SessionSettings) -> list[StepOutput]:
    runner = OnnxRunner(bundle, max_rows=NUM_ROWS, sessions=settings)
    return list(greedy_steps(runner, random_sources(bundle.config, NUM_ROWS), NUM_STEPS))


@pytest.mark.parametrize(
    ("fields", "exact"),
    [
        ({"precision": "fp32"}, None),
        ({"precision": "int8"}, True),
        ({"precision": "int8"}, False),
        ({"precision": "int8", "shortlist": random_shortlist()}, None),
    ],
)
def test_packed_weights_give_the_same_bits(
    tmp_path: Path, fields: dict[str, Any], exact: bool | None
) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", **fields, **WIDE)
    settings = SessionSettings(intra_op_threads=1, exact_int8_products=exact)
    (tmp_path / "packed").mkdir()
    shared = dataclasses.replace(settings, packed=tmp_path / "packed")
    expected = steps_of(bundle, settings)
    assert same_steps(steps_of(bundle, shared), expected)
    written = {file.name: file.stat().st_mtime_ns for file in shared.packed.iterdir()}  # type: ignore[union-attr]
    assert {"encoder.onnx", "encoder.weights", "decoder_step.weights"} <= written.keys()
    # By the next process, and with more threads.
    assert same_steps(steps_of(bundle, dataclasses.replace(shared, intra_op_threads=2)), expected)
    assert written == {
        file.name: file.stat().st_mtime_ns
        for file in shared.packed.iterdir()  # type: ignore[union-attr]
    }


def test_weights_that_can_not_be_written_are_not_shared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", precision="int8", **WIDE)
    settings = SessionSettings(intra_op_threads=1)
    missing = dataclasses.replace(settings, packed=tmp_path / "missing")
    with caplog.at_level(logging.WARNING):
        assert same_steps(steps_of(bundle, missing), steps_of(bundle, settings))
    assert "are not shared between sessions" in caplog.text


def test_weights_without_room_leave_it_to_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", precision="int8", **WIDE)
    whole, small = (
        SessionSettings(intra_op_threads=1, packed=tmp_path / name) for name in ("whole", "small")
    )
    (tmp_path / "whole").mkdir()
    (tmp_path / "small").mkdir()
    expected = steps_of(bundle, whole)
    sizes = {file.name: file.stat().st_size for file in (tmp_path / "whole").iterdir()}
    assert sizes["encoder.weights"] < sizes["decoder_step.weights"]
    with file_size_limit(sizes["encoder.weights"]), caplog.at_level(logging.WARNING):
        assert same_steps(steps_of(bundle, small), expected)
    assert caplog.text.count("decoder_step.onnx are not shared between sessions") == 1
    left = {file.name for file in (tmp_path / "small").iterdir()}
    assert left == {"encoder.onnx", "encoder.weights"}


@contextlib.contextmanager
def file_size_limit(num_bytes: int) -> Iterator[None]:
    """Writing fails in larger files, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

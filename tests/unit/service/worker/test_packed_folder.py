"""The folder for packed weights: where there is room, and only while sessions are opened."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from model.bundle.bundle import Bundle
from service.settings import Settings, shipped_models
from service.worker.memory import memory_need
from service.worker.packed_weights import folder_of_packed_weights, parent_with_room


@pytest.fixture
def bundle() -> Bundle:
    return Bundle.load(shipped_models()[0], verify=False)


@pytest.fixture
def huge(tmp_path: Path) -> Bundle:
    """A bundle whose weights seem to have four terabytes."""
    shutil.copytree(shipped_models()[0], tmp_path / "huge")
    os.truncate(tmp_path / "huge" / "weights.bin", 2**42)
    return Bundle.load(tmp_path / "huge", verify=False)


def test_the_folder_is_removed_when_all_are_open(bundle: Bundle) -> None:
    with folder_of_packed_weights(bundle) as folder:
        assert folder is not None
        assert folder.stat().st_mode & 0o077 == 0
        (folder / "decoder.weights").write_bytes(b"weights")
    assert not folder.exists()


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs /dev/shm")
def test_without_temporary_files_the_folder_is_in_shared_memory(
    bundle: Bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with caplog.at_level(logging.WARNING), folder_of_packed_weights(bundle) as folder:
        assert folder is not None
        assert folder.parent == Path("/dev/shm")
    assert not caplog.text


def test_without_room_there_is_no_folder(huge: Bundle, caplog: pytest.LogCaptureFixture) -> None:
    assert parent_with_room(huge) is None
    with caplog.at_level(logging.WARNING), folder_of_packed_weights(huge) as folder:
        assert folder is None
    assert "each session of en-de has weights of its own" in caplog.text


def test_without_room_each_session_and_process_counts(huge: Bundle) -> None:
    settings = Settings(threads=1), Settings(threads=2), Settings(threads=4, model_processes=2)

    def copies(bundle: Bundle) -> list[float]:
        needs = [memory_need(bundle, each, own_process=True).weights for each in settings]
        return [need / needs[0] for need in needs]

    # A tiny decoder steps on one thread, so all lanes share a session; a larger one has two.
    larger = dataclasses.replace(huge.config, vocab_size=2 * huge.config.vocab_size)
    assert copies(huge) == [1, 1, 2]
    assert copies(dataclasses.replace(huge, config=larger)) == [1, 2, 4]

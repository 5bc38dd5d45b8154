"""Opening a model leaves the processor to others, and no thread that serves later stays nice."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from model.bundle import sessions
from model.bundle.background import in_background, in_own_thread, lower_priority
from model.bundle.sessions import SessionSettings, open_session
from tests.factories import tiny_bundle

NUM_THREADS = 3


def niceness(task: int | None = None) -> int:
    return os.getpriority(os.PRIO_PROCESS, task or threading.get_native_id())


def tasks() -> set[int]:
    """The threads of this process, also those that Python does not know of."""
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


def test_only_the_work_and_the_threads_that_it_starts_are_nicer() -> None:
    before = niceness()
    assert in_background(niceness, 2) == min(before + 2, 19)
    assert in_background(lambda: in_own_thread(niceness), 2) == min(before + 2, 19)
    assert in_background(lambda: in_background(niceness, 3), 2) == min(before + 5, 19)
    assert in_background(niceness, 99) == 19
    assert in_background(threading.get_native_id, 0) == threading.get_native_id()
    assert niceness() == before
    with pytest.raises(ValueError, match="what the work raises"):
        in_background(lambda: int("what the work raises"), 7)


def test_a_session_is_prepared_in_the_background_and_its_own_threads_are_not_nicer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tiny_bundle(tmp_path / "bundle")
    before, present = tasks(), niceness()
    started: list[set[int]] = []

    def observed(niceness: int) -> None:
        started.append(tasks() - before - {threading.get_native_id()})
        lower_priority(niceness)

    monkeypatch.setattr(sessions, "lower_priority", observed)
    settings = SessionSettings(intra_op_threads=NUM_THREADS, opening_niceness=7)
    session = open_session(bundle, bundle.encoder_path, settings)
    [own] = started
    assert len(own) == NUM_THREADS - 1  # the caller of a run is the other one
    assert own <= tasks()
    assert {niceness(task) for task in own} == {present}
    del session

"""Opening a model in a process of its own."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from service.engine.engine import Engine
from service.errors import (
    StartupError,
)
from service.worker.opening import OpenModel
from service.worker.process import ModelProcess
from tests import process_models
from tests.factories import tiny_bundle
from tests.integration.replacing import model_processes


@pytest.mark.parametrize(
    ("open_model", "message"),
    [
        (process_models.unusable, "export it again"),
        (process_models.broken, "could not be opened; the log says why"),
        (process_models.killed, "model a-model was killed by SIGKILL while it was opened.*memory"),
    ],
)
def test_a_model_that_can_t_be_opened_says_why(
    open_model: Callable[[], OpenModel], message: str
) -> None:
    with pytest.raises(StartupError, match=message) as caught:
        ModelProcess("a-model", open_model)
    assert "secret" not in str(caught.value)


def test_a_process_that_ends_before_it_is_told_what_to_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(StartupError, match="a-model ended with status 1 while it was opened"):
        ModelProcess("a-model", process_models.touchy)


async def test_while_it_is_opened_a_process_is_the_first_to_be_killed_for_memory() -> None:
    process = ModelProcess("a-model", process_models.with_its_oom_score)
    score = Path("/proc/self/oom_score_adj").read_text()
    assert process.cache_bytes == 1000
    assert Path(f"/proc/{process.pid}/oom_score_adj").read_text() == score
    await Engine(process).stop()


async def test_no_thread_that_serves_stays_as_nice_as_the_threads_that_opened_the_model(
    tmp_path: Path,
) -> None:
    """Without privileges, none could be made faster again."""
    bundle = tiny_bundle(tmp_path / "bundle")
    opening = functools.partial(
        process_models.opened_in_background, bundle.path, bundle.manifest_sha256
    )
    process = ModelProcess("a-model", opening, niceness=process_models.BACKGROUND_NICENESS)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert process.cache_bytes == own
    engine = Engine(process)
    await engine.start()
    await engine.prepare_scoring()
    tasks = [int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()]
    assert len(tasks) > process_models.NUM_THREADS
    assert {os.getpriority(os.PRIO_PROCESS, task) for task in tasks} == {own}
    await engine.stop()


async def test_an_engine_that_never_started_leaves_no_process() -> None:
    process = ModelProcess("a-model", process_models.touchy)
    await Engine(process).stop()
    assert process.exit_status == 0


def test_a_process_that_does_not_open_its_model_in_time_is_killed(pipe: Path) -> None:
    opening = functools.partial(process_models.slow_to_open, pipe)
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # sent if it gets so far
    try:
        with pytest.raises(StartupError, match="a-model had not opened it after 0 s: killed"):
            ModelProcess("a-model", opening, open_seconds=0.1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert model_processes(os.getpid()) == []


def test_a_server_that_dies_while_a_model_is_opened_takes_its_process_along(pipe: Path) -> None:
    script = (
        "import functools, pathlib, signal, sys\n"
        "from service.worker.process import ModelProcess\n"
        "from tests.process_models import slow_to_open\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))\n"
        "ModelProcess('a-model', functools.partial(slow_to_open, pathlib.Path(sys.argv[1])))\n"
    )
    # The model's process has the pipe of standard error too: it closes when both have gone.
    command = [sys.executable, "-c", script, str(pipe)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    assert (ended.returncode, ended.stderr) == (7, "")

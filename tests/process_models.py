"""Functions that `ModelProcess` calls by name to open models in processes of their own."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from pathlib import Path

from service.domain.plan import RunnerLimits, StepOutput, StepPlan
from service.errors import StartupError
from service.settings import Settings
from service.worker.opening import OpenModel, open_model
from tests.fake_lanes import FakeLanes
from tests.fake_runner import FakeRunner
from tests.fake_scorer import FakeScorer

LIMITS = RunnerLimits(
    max_rows=4, max_source_positions=200_000, max_target_positions=40, top_k=2, vocab_size=512
)
NUM_THREADS, BACKGROUND_NICENESS = 3, 5
FAILING, HANGING, KILLING = 500, 501, 502  # source tokens that make a step do so


class TouchyRunner(FakeRunner):
    """A `FakeRunner` that fails, hangs or dies at some source tokens."""

    def execute(self, plan: StepPlan) -> StepOutput:
        """Carry out the plan, or fail, hang or die with it."""
        tokens = {token for item in plan.encodes for token in item.source_ids}
        if FAILING in tokens:
            raise RuntimeError("the secret of this failure")
        if HANGING in tokens:
            os.kill(os.getppid(), signal.SIGUSR1)  # tells the test
            threading.Event().wait()
        if KILLING in tokens:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(plan)


def touchy() -> OpenModel:
    """A model that can be made to fail, with a `FakeScorer`."""
    return OpenModel(TouchyRunner(LIMITS), FakeScorer(), cache_bytes=4711)


class GatedRunner(FakeRunner):
    """Waits before its third step until something is written to a pipe.

    Args:
        pipe: path of a named pipe.
    """

    def __init__(self, pipe: Path) -> None:
        super().__init__(LIMITS, script=lambda source_ids: range(10, 30))
        self._pipe = pipe

    def execute(self, plan: StepPlan) -> StepOutput:
        """Carry out the plan; the third one waits for the pipe."""
        if len(self.plans) == 2:
            self._pipe.read_bytes()
        return super().execute(plan)


def gated(pipe: Path) -> OpenModel:
    """A model that generates two tokens at once, and eighteen more after a write to the pipe."""
    return OpenModel(GatedRunner(pipe), FakeScorer(), cache_bytes=1)


def slow_to_open(pipe: Path) -> OpenModel:
    """A model that signals that it is opening, and opens when something is written to a pipe."""
    os.kill(os.getppid(), signal.SIGUSR1)
    pipe.read_bytes()
    return touchy()


def with_its_oom_score() -> OpenModel:
    """A model with its process's `oom_score_adj` during opening as `cache_bytes`."""
    score = int(Path("/proc/self/oom_score_adj").read_text())
    return OpenModel(FakeRunner(LIMITS), None, cache_bytes=score)


def opened_in_background(bundle: Path, manifest_sha256: str) -> OpenModel:
    """A model of a bundle with the niceness of the opening thread as `cache_bytes`."""
    niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    settings = Settings(threads=NUM_THREADS)
    opened = open_model(bundle, settings, manifest_sha256, BACKGROUND_NICENESS)
    return dataclasses.replace(opened, cache_bytes=niceness)


def laned() -> OpenModel:
    """A model in two lanes, of two rows each, that can't score."""
    return OpenModel(FakeLanes(LIMITS), None, cache_bytes=1)


def without_memory_to_score() -> OpenModel:
    """A model with a scorer that can't be loaded because memory runs out."""
    return _unscored(MemoryError("so much"))


def without_scoring_graph() -> OpenModel:
    """A model with a scorer that can't be loaded."""
    return _unscored(ValueError("the secret of this failure"))


def _unscored(failure: Exception) -> OpenModel:
    scorer = FakeScorer()
    scorer.failures = [failure]
    return OpenModel(FakeRunner(LIMITS), scorer, cache_bytes=1)


class _Unreadable(int):
    """A number that can be pickled, but not unpickled."""

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return int, ("this is no number",)


class NonsenseRunner(FakeRunner):
    """A runner with steps that return something else than a `StepOutput`."""

    def execute(self, plan: StepPlan) -> StepOutput:
        """Carry out the plan, and return an output that can't be unpickled."""
        return dataclasses.replace(super().execute(plan), num_padding=_Unreadable())


def talking_nonsense() -> OpenModel:
    """A model with a process that sends messages that the server can't read."""
    return OpenModel(NonsenseRunner(LIMITS), None, cache_bytes=1)


def unusable() -> OpenModel:
    """Fail to open, for a reason that the user can fix."""
    raise StartupError("the bundle is of another time: export it again")


def broken() -> OpenModel:
    """Fail to open because of a defect."""
    raise ValueError("the secret of this failure")


def killed() -> OpenModel:
    """Kill the process, as the kernel does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still there")

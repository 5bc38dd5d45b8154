"""Opening a model: from a bundle to a runner and a scorer, in whichever process it runs."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from model.bundle import Bundle, BundleError
from service.errors import StartupError
from service.runtime.plan import LanedRunner, ModelRunner, Scorer
from service.settings import Settings, shipped_models

if TYPE_CHECKING:
    from model.sessions import SessionSettings
    from service.runtime.cpu.lanes import OnnxLanes
    from service.runtime.cpu.runner import OnnxRunner
    from service.runtime.cuda.runner import DeviceRunner

CPU_ROWS = 64
"""Rows of a model on a CPU, unless the settings say otherwise."""


@dataclass(frozen=True)
class OpenModel:
    """What a step loop needs.

    Attributes:
        runner: runs the model.
        scorer: scores given translations; None if the model can't.
        cache_bytes: what the runner's caches can grow to.
        encode_token_budget: for `EngineConfig`; None for its default.
        step_seconds: what a step of one row took in a trial; 0 without one.
        device: the runner, if it is on a GPU.
    """

    runner: ModelRunner | LanedRunner
    scorer: Scorer | None
    cache_bytes: int
    encode_token_budget: int | None = None
    step_seconds: float = 0.0
    device: DeviceRunner | None = None


def open_model(path: Path, settings: Settings) -> OpenModel:
    """Open the bundle at `path`, on the device and with the rows and threads of the settings.

    The model is tried before it is returned.

    Raises:
        StartupError: it can't be used; the message says what to do.
    """
    # onnxruntime sends telemetry unless this is set before its import. It is imported here and not
    # above, since a server whose models run in processes of their own does not need its tens of
    # megabytes.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    from model.sessions import SessionSettings
    from service.runtime.cuda.encoder import ENCODE_TOKEN_BUDGET
    from service.runtime.cuda.runner import DeviceRunner
    from service.runtime.scoring import OnnxScorer
    from service.worker.trial import try_scoring, try_translating

    try:
        bundle = Bundle.load(path)
    except BundleError as exc:
        raise StartupError(str(exc)) from exc
    sessions = SessionSettings(settings.device, settings.threads or None)
    try_scoring(bundle, sessions)  # first, so that the memory it takes is free again
    runner = _runner(bundle, settings, sessions)
    scorer = None
    with contextlib.ExitStack() as failing:
        failing.callback(runner.close)  # or a version that is refused would keep a GPU's memory
        step_seconds = try_translating(bundle, runner)
        if bundle.scoring_path is not None:
            try:
                scorer = OnnxScorer(bundle, sessions, runner.encoder_session)
            except OSError as exc:
                raise StartupError(f"{exc.filename} cannot be read: {exc.strerror}") from exc
        failing.pop_all()
    # On a device, a large encode takes hardly longer than a small.
    device = runner if isinstance(runner, DeviceRunner) else None
    budget = ENCODE_TOKEN_BUDGET if device is not None else None
    return OpenModel(runner, scorer, runner.cache_bytes, budget, step_seconds, device)


def _runner(
    bundle: Bundle, settings: Settings, sessions: SessionSettings
) -> OnnxRunner | OnnxLanes | DeviceRunner:
    if settings.device == "cpu":
        from service.runtime.cpu.lanes import cpu_runner

        return cpu_runner(bundle, settings.max_rows or CPU_ROWS, sessions)
    from service.runtime.cuda.runner import DeviceOptions, DeviceRunner

    options = DeviceOptions(
        settings.max_rows or None,
        not settings.no_cuda_graphs,
        settings.steps_in_flight,
        num_models=len(settings.model or shipped_models()),
    )
    return DeviceRunner(bundle, sessions, options)

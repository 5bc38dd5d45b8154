"""Opening a model: from a bundle to a runner and a scorer, in the process in which it runs."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from model.bundle.background import in_background
from model.bundle.bundle import Bundle
from model.bundle.manifest import BundleError
from service.domain.plan import LanedRunner, ModelRunner, Scorer
from service.errors import StartupError
from service.settings import Settings, shipped_models

if TYPE_CHECKING:
    from model.bundle.sessions import SessionSettings
    from service.runtime.cpu.lanes import OnnxLanes
    from service.runtime.cpu.runner import OnnxRunner
    from service.runtime.cuda.runner import DeviceRunner

CPU_ROWS = 64
"""Number of rows of a model on a CPU, unless the settings name another."""


@dataclass(frozen=True)
class OpenModel:
    """An opened model, ready for a step loop.

    Attributes:
        runner: runs the model.
        scorer: scores given translations; None if the model can't score.
        cache_bytes: size that the runner's caches can grow to, in bytes.
        encode_token_budget: value for `EngineConfig`; None for its default.
        step_seconds: duration of a step of one row, measured in a trial; 0 without a trial.
        device: the runner, if it is on a GPU.
    """

    runner: ModelRunner | LanedRunner
    scorer: Scorer | None
    cache_bytes: int
    encode_token_budget: int | None = None
    step_seconds: float = 0.0
    device: DeviceRunner | None = None


def open_model(
    path: Path,
    settings: Settings,
    manifest_sha256: str,
    niceness: int = 0,
    packed: Path | None = None,
) -> OpenModel:
    """Open the bundle at `path`, on the device and with the rows and threads of the settings.

    The model is tried before it is returned.

    Args:
        path: the bundle's directory.
        settings: device, number of rows and threads.
        manifest_sha256: hash of the expected bundle's manifest; the directory may have another
            bundle by now.
        niceness: niceness of opening and trying the model, relative to the calling thread. The
            model then runs with the niceness of the calling thread.
        packed: folder of packed weights that sessions share; None for weights of their own.

    Raises:
        StartupError: the bundle can't be used; the message says what to do.
    """
    in_background(_import_runtime, niceness)
    from model.bundle.sessions import SessionSettings
    from service.runtime.cuda.encoder import ENCODE_TOKEN_BUDGET
    from service.runtime.cuda.runner import DeviceRunner
    from service.runtime.scoring import OnnxScorer
    from service.worker.trial import try_scoring, try_translating

    try:
        bundle = in_background(lambda: Bundle.load(path), niceness)
    except BundleError as exc:
        raise StartupError(str(exc)) from exc
    if bundle.manifest_sha256 != manifest_sha256:
        raise StartupError(f"{path} was replaced while it was opened: try again")
    sessions = SessionSettings(
        settings.device, settings.threads or None, uses_shortlist=not settings.no_shortlist
    )
    # First, so that its memory is free again.
    in_background(lambda: try_scoring(bundle, sessions), niceness)
    nicely = dataclasses.replace(sessions, opening_niceness=niceness, packed=packed)
    runner = _runner(bundle, settings, nicely)
    scorer = None
    with contextlib.ExitStack() as failing:
        failing.callback(runner.close)  # otherwise a refused version would keep a GPU's memory
        step_seconds = try_translating(bundle, runner, niceness)
        if bundle.scoring_path is not None:
            scorer = OnnxScorer(bundle, sessions, runner.encoder_session)
        failing.pop_all()
    # Files that are opened later, or mapped by files opened later.
    late = (bundle.scoring_path, bundle.attention_path, bundle.weights_path)
    bundle.files.keep(*filter(None, late))
    # On a device, a large encode takes hardly longer than a small one.
    device = runner if isinstance(runner, DeviceRunner) else None
    budget = ENCODE_TOKEN_BUDGET if device is not None else None
    return OpenModel(runner, scorer, runner.cache_bytes, budget, step_seconds, device)


def _import_runtime() -> None:
    """Import ONNX Runtime and the runners, which takes long and tens of megabytes.

    A server with models in processes of their own never imports them.
    """
    # onnxruntime sends telemetry unless this is set before its import.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import service.runtime.cuda.runner
    import service.runtime.scoring
    import service.worker.trial  # noqa: F401


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

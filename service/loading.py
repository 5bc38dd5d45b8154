"""From bundle directories to models that are ready to translate."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
import os
from collections.abc import Iterable
from pathlib import Path

# onnxruntime reports usage to its makers unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from model.bundle import Bundle, BundleError, installed_runtime_version
from model.sessions import SessionSettings
from model.tokenizer import TokenizerError
from service.device_encoder import ENCODE_TOKEN_BUDGET
from service.device_runner import DeviceOptions, DeviceRunner
from service.engine import Engine, EngineConfig
from service.errors import StartupError
from service.limits import TranslatorLimits
from service.metrics import ServerMetrics
from service.onnx_lanes import OnnxLanes, cpu_runner
from service.registry import Registry, ServedModel
from service.runner import OnnxRunner
from service.scoring import OnnxScorer
from service.settings import Settings, shipped_models
from service.translator import Translator

_log = logging.getLogger(__name__)


def load_models(settings: Settings, metrics: ServerMetrics) -> Registry:
    """Load every bundle that the settings name, or else those that were installed.

    Args:
        settings: which bundles, on what device, with how many rows and threads.
        metrics: is told what is loaded, and given every engine's figures.

    Raises:
        StartupError: a bundle can't be used; the message says what to do.
    """
    metrics.set_build(_own_version(), installed_runtime_version() or "unknown")
    paths = settings.model or shipped_models()
    return Registry([load_model(path, settings, metrics) for path in _distinct(paths)])


def load_model(path: Path, settings: Settings, metrics: ServerMetrics) -> ServedModel:
    """Load the bundle at `path`. Arguments and errors as for `load_models`."""
    try:
        bundle = Bundle.load(path)
        tokenizer = bundle.tokenizer()
    except (BundleError, TokenizerError) as exc:
        raise StartupError(str(exc)) from exc
    sessions = SessionSettings(settings.device, settings.threads or None)
    runner = _runner(bundle, settings, sessions)
    _log.info(
        "loaded",
        extra={
            "model": bundle.name,
            "rows": runner.limits.max_rows,
            "lanes": len(runner.lanes) if isinstance(runner, OnnxLanes) else 1,
            # All that they will ever take, however long the texts and wide the beams.
            "cache_bytes": runner.cache_bytes,
        },
    )
    observer = metrics.for_model(bundle.name)
    config = EngineConfig(
        bos_id=bundle.config.bos_id,
        eos_id=bundle.config.eos_id,
        max_waiting=settings.max_waiting,
        max_queue_seconds=settings.max_queue_seconds or None,
    )
    if isinstance(runner, DeviceRunner):  # where a large encode takes hardly longer than a small
        config = dataclasses.replace(config, encode_token_budget=ENCODE_TOKEN_BUDGET)
    engine = Engine(
        runner,
        config,
        observer,
        OnnxScorer(bundle, sessions, runner.encoder_session) if bundle.scoring_path else None,
    )
    model = ServedModel(
        name=bundle.name,
        version=bundle.version,
        source=bundle.source_language,
        target=bundle.target_language,
        precision=bundle.precision,
        device=settings.device,
        max_source_tokens=runner.limits.max_source_positions,
        max_target_tokens=runner.limits.max_target_positions,
        max_rows=runner.limits.max_rows,
        engine=engine,
        translator=Translator(
            engine,
            tokenizer,
            source_language=bundle.source_language,
            limits=TranslatorLimits(
                settings.max_texts, settings.max_characters, settings.max_request_characters
            ),
        ),
    )
    observer.set_capacity(runner.limits.max_rows, settings.max_waiting, runner.cache_bytes)
    if isinstance(runner, DeviceRunner):
        observer.set_device(runner)
    metrics.set_model(
        model=model.name,
        version=model.version,
        precision=model.precision,
        device=model.device,
        source=model.source,
        target=model.target,
    )
    return model


_CPU_ROWS = 64


def _runner(
    bundle: Bundle, settings: Settings, sessions: SessionSettings
) -> OnnxRunner | OnnxLanes | DeviceRunner:
    if settings.device == "cpu":
        return cpu_runner(bundle, settings.max_rows or _CPU_ROWS, sessions)
    options = DeviceOptions(
        settings.max_rows or None, not settings.no_cuda_graphs, settings.steps_in_flight
    )
    return DeviceRunner(bundle, sessions, options)


def _distinct(paths: Iterable[Path]) -> list[Path]:
    return list(dict.fromkeys(path.resolve() for path in paths))


def _own_version() -> str:
    try:
        return importlib.metadata.version("dragoman")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        return "unknown"

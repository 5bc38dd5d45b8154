"""Loads bundles into models that are ready to translate."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import dragoman
from model.bundle import Bundle, BundleError, installed_runtime_version
from model.processor import num_usable_cores
from model.tokenizer import TokenizerError
from service.api.registry import Registry, ServedModel
from service.engine.engine import Engine, EngineConfig
from service.engine.metrics import ModelMetrics
from service.errors import StartupError
from service.observability.metrics import ServerMetrics
from service.runtime.plan import LanedRunner
from service.settings import Settings, shipped_models
from service.translation.options import TranslatorLimits
from service.translation.translator import Translator
from service.worker.opening import open_model
from service.worker.process import ModelProcess

_log = logging.getLogger(__name__)


def load_models(settings: Settings, metrics: ServerMetrics) -> Registry:
    """Load the bundles of the settings, or else those of this installation.

    Args:
        settings: bundles, device, rows, threads and limits.
        metrics: for the models and their engines.

    Raises:
        StartupError: a bundle can't be used; the message says what to do.
    """
    metrics.set_build(dragoman.__version__, installed_runtime_version() or "unknown")
    paths = settings.model or shipped_models()
    return Registry([load_model(path, settings, metrics) for path in _distinct(paths)])


def load_model(path: Path, settings: Settings, metrics: ServerMetrics) -> ServedModel:
    """Load the bundle at `path`. Arguments and errors as for `load_models`."""
    try:
        bundle = Bundle.load(path)
        tokenizer = bundle.tokenizer()
    except (BundleError, TokenizerError) as exc:
        raise StartupError(str(exc)) from exc
    observer = ModelMetrics(metrics, bundle.name)
    config = EngineConfig(
        bos_id=bundle.config.bos_id,
        eos_id=bundle.config.eos_id,
        max_waiting=settings.max_waiting,
        max_queue_seconds=settings.max_queue_seconds or None,
    )
    if _has_own_process(settings):
        engine, facts = _engine_in_own_process(bundle.name, path, settings, config, observer)
    else:
        engine, facts = _engine_in_this_process(path, settings, config, observer)
    _log.info("loaded", extra={"model": bundle.name, **dataclasses.asdict(facts)})
    observer.set_capacity(facts.rows, settings.max_waiting, facts.cache_bytes)
    limits = engine.limits
    model = ServedModel(
        name=bundle.name,
        version=bundle.version,
        source=bundle.source_language,
        target=bundle.target_language,
        precision=bundle.precision,
        device=settings.device,
        max_source_tokens=limits.max_source_positions,
        max_target_tokens=limits.max_target_positions,
        max_rows=limits.max_rows,
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
    metrics.set_model(
        model=model.name,
        version=model.version,
        precision=model.precision,
        device=model.device,
        source=model.source,
        target=model.target,
    )
    return model


def _has_own_process(settings: Settings) -> bool:
    """Whether each model gets its own process.

    On one core it would gain nothing. The metrics of a GPU are read where its runner is.
    """
    return settings.device == "cpu" and not settings.in_process and num_usable_cores() > 1


@dataclass(frozen=True)
class _Facts:
    """Facts of a loaded model for the log.

    Attributes:
        rows: that can step at the same time.
        lanes: groups of rows that step independently, one per core.
        cache_bytes: the limit of its caches.
        pid: of the process that it runs in.
    """

    rows: int
    lanes: int
    cache_bytes: int
    pid: int


def _engine_in_own_process(
    name: str, path: Path, settings: Settings, config: EngineConfig, observer: ModelMetrics
) -> tuple[Engine, _Facts]:
    process = ModelProcess(
        name,
        functools.partial(open_model, path, settings),
        log_level=settings.log_level,
        log_format=settings.log_format,
    )
    observer.set_process(process.pid)
    config = dataclasses.replace(config, step_seconds=process.step_seconds)
    facts = _Facts(process.limits.max_rows, process.num_lanes, process.cache_bytes, process.pid)
    return Engine(process, config, observer), facts


def _engine_in_this_process(
    path: Path, settings: Settings, config: EngineConfig, observer: ModelMetrics
) -> tuple[Engine, _Facts]:
    model = open_model(path, settings)
    runner = model.runner
    if model.device is not None:
        observer.set_device(model.device)
    config = dataclasses.replace(config, step_seconds=model.step_seconds)
    if (budget := model.encode_token_budget) is not None:
        config = dataclasses.replace(config, encode_token_budget=budget)
    num_lanes = len(runner.lanes) if isinstance(runner, LanedRunner) else 1
    facts = _Facts(runner.limits.max_rows, num_lanes, model.cache_bytes, os.getpid())
    return Engine(runner, config, observer, model.scorer), facts


def _distinct(paths: Iterable[Path]) -> list[Path]:
    return list(dict.fromkeys(path.resolve() for path in paths))

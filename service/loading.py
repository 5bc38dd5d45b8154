"""Loads bundles into models that are ready to translate."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Iterable
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
    rows = engine.limits.max_rows
    _log.info("loaded", extra={"model": bundle.name, "rows": rows, **facts})
    observer.set_capacity(rows, settings.max_waiting, facts["cache_bytes"])
    model = ServedModel(
        name=bundle.name,
        version=bundle.version,
        source=bundle.source_language,
        target=bundle.target_language,
        precision=bundle.precision,
        device=settings.device,
        engine=engine,
        translator=Translator(
            engine,
            tokenizer,
            source_language=bundle.source_language,
            limits=TranslatorLimits(
                settings.max_texts, settings.max_characters, settings.max_request_characters
            ),
            can_align=bundle.can_align,
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


def _engine_in_own_process(
    name: str, path: Path, settings: Settings, config: EngineConfig, observer: ModelMetrics
) -> tuple[Engine, dict[str, int]]:
    process = ModelProcess(
        name,
        functools.partial(open_model, path, settings),
        log_level=settings.log_level,
        log_format=settings.log_format,
    )
    observer.set_process(process.pid)
    config = dataclasses.replace(config, step_seconds=process.step_seconds)
    facts = {"lanes": process.num_lanes, "cache_bytes": process.cache_bytes, "pid": process.pid}
    return Engine(process, config, observer), facts


def _engine_in_this_process(
    path: Path, settings: Settings, config: EngineConfig, observer: ModelMetrics
) -> tuple[Engine, dict[str, int]]:
    model = open_model(path, settings)
    runner = model.runner
    if model.device is not None:
        observer.set_device(model.device)
    config = dataclasses.replace(config, step_seconds=model.step_seconds)
    if (budget := model.encode_token_budget) is not None:
        config = dataclasses.replace(config, encode_token_budget=budget)
    num_lanes = len(runner.lanes) if isinstance(runner, LanedRunner) else 1
    facts = {"lanes": num_lanes, "cache_bytes": model.cache_bytes, "pid": os.getpid()}
    return Engine(runner, config, observer, model.scorer), facts


def _distinct(paths: Iterable[Path]) -> list[Path]:
    return list(dict.fromkeys(path.resolve() for path in paths))

"""From bundle directories to models that are ready to translate."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterable
from pathlib import Path

# onnxruntime reports usage to its makers unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from model.bundle import Bundle, BundleError, installed_runtime_version
from model.tokenizer import TokenizerError
from service.engine import Engine, EngineConfig
from service.errors import StartupError
from service.metrics import ServerMetrics
from service.registry import Registry, ServedModel
from service.runner import OnnxRunner
from service.settings import Settings, shipped_models
from service.translator import Translator, TranslatorLimits


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
    runner = OnnxRunner(
        bundle,
        device=settings.device,
        max_rows=settings.max_rows,
        intra_op_threads=settings.threads or None,
    )
    observer = metrics.for_model(bundle.name)
    engine = Engine(
        runner,
        EngineConfig(
            bos_id=bundle.config.bos_id,
            eos_id=bundle.config.eos_id,
            max_waiting=settings.max_waiting,
        ),
        observer,
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
    observer.set_capacity(settings.max_rows, settings.max_waiting, runner.cache_bytes)
    metrics.set_model(
        model=model.name,
        version=model.version,
        precision=model.precision,
        device=model.device,
        source=model.source,
        target=model.target,
    )
    return model


def _distinct(paths: Iterable[Path]) -> list[Path]:
    return list(dict.fromkeys(path.resolve() for path in paths))


def _own_version() -> str:
    try:
        return importlib.metadata.version("dragoman")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        return "unknown"

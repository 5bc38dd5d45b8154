"""Loads bundles into models that are ready to translate."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import dragoman
from model.bundle.bundle import Bundle
from model.bundle.manifest import BundleError
from model.bundle.manifest_checks import installed_runtime_version
from model.bundle.processor import instruction_sets
from model.bundle.tokenizer import TokenizerError
from service.cache.response_cache import ModelCache, ResponseCache
from service.cache.setup import response_cache
from service.domain.attention import AttentionShape
from service.domain.plan import LanedRunner
from service.engine.engine import Engine, EngineConfig
from service.engine.metrics import ModelMetrics
from service.errors import StartupError
from service.models.lifecycle.metrics import LifecycleMetrics
from service.models.registry import Registry
from service.models.routing_rules import RoutingRules, check_names
from service.models.served_model import ServedModel
from service.observability.metrics import ServerMetrics
from service.settings import Settings, shipped_models
from service.translation.default_search import check_rows, default_search
from service.translation.options import TranslatorLimits
from service.translation.translator import Translator
from service.worker.division import divided, has_own_process
from service.worker.memory import MemoryBudget, check_memory, with_processes_that_fit
from service.worker.opening import open_model
from service.worker.packed_weights import folder_of_packed_weights
from service.worker.process import ModelProcess
from service.worker.process_group import ProcessGroup

# Longest time to open a model that replaces another one or wakes: far more than large weights need
# on a slow disk, at a low priority and on a busy machine.
_OPEN_SECONDS = 1800.0

# Niceness of the threads that open a version while another one serves. They get a tenth of the time
# of a thread that serves: a busy machine delays a reload, but does not stop it.
_BACKGROUND_NICENESS = 10

_log = logging.getLogger(__name__)


def load_models(settings: Settings, metrics: ServerMetrics) -> Registry:
    """Load the bundles of the settings or, if there are none, those of this installation.

    Raises:
        StartupError: a bundle can't be used; the message says what to do.
    """
    metrics.set_build(dragoman.__version__, installed_runtime_version() or "unknown")
    if settings.idle_seconds and not has_own_process(settings):
        raise StartupError(
            "setting idle_seconds: only a model in a process of its own can be put to sleep, and "
            "on a GPU, on a single core and with in_process models run in the server's process"
        )
    cache = response_cache(settings, metrics)
    paths = _distinct(settings.model or shipped_models())
    rules = RoutingRules(settings.default, not settings.no_pivot, settings.pivot_languages)
    bundles = [_manifest(path) for path in paths]
    check_names(bundles, paths)  # and the rules, before models are loaded, which takes long
    rules.resolved(bundles)
    settings = with_processes_that_fit(bundles, settings)
    if settings.device == "cpu":  # a GPU's rows follow from its free memory
        check_memory(bundles, settings, own_process=has_own_process(settings))
    budget = MemoryBudget(settings)
    models = [load_model(path, settings, metrics, budget, cache=cache) for path in paths]
    return Registry(models, rules, LifecycleMetrics(metrics), cache)


def load_model(
    given: Path,
    settings: Settings,
    metrics: ServerMetrics,
    budget: MemoryBudget | None = None,
    replaces: str = "",
    *,
    in_background: bool = False,
    cache: ResponseCache | None = None,
) -> ServedModel:
    """Load the bundle in a directory.

    Args:
        given: directory, possibly a symbolic link; it is resolved once, so that all files are of
            one bundle.
        replaces: name of the model of which this becomes another version, without metrics until it
            is current; "" for a model's first version.
        in_background: whether to open the bundle at a low priority, while models serve.
        cache: the server's cache; None without one.

    Raises:
        StartupError: the bundle can't be used; the message says what to do.
    """
    path = given.resolve()
    try:
        # The other files are verified by the process that reads them, the model's.
        bundle = Bundle.load(path, verify=False)
        tokenizer = bundle.tokenizer()
        search = default_search(bundle)
        calibration = bundle.calibration()
    except (BundleError, TokenizerError) as exc:
        raise StartupError(str(exc)) from exc
    if replaces and bundle.name != replaces:
        raise StartupError(f"{given} is a bundle of model {bundle.name}, not of {replaces}")
    observer = ModelMetrics(metrics, bundle.name, is_current=not replaces)
    config = EngineConfig(
        bos_id=bundle.config.bos_id,
        eos_id=bundle.config.eos_id,
        max_waiting=settings.max_waiting,
        max_queue_seconds=settings.max_queue_seconds or None,
    )
    if has_own_process(settings):
        budget = budget or MemoryBudget(settings)
        with budget.opening(bundle) as started:
            niceness = _BACKGROUND_NICENESS if in_background else 0
            process = _opened(bundle, settings, niceness, is_reload=bool(replaces))
            started(lambda: process.is_running)
        engine, facts = _engine_in_own_process(process, config, observer)
    else:
        engine, facts = _engine_in_this_process(bundle, settings, config, observer)
    try:
        check_rows(bundle.name, search, engine.widest)
    except StartupError:
        engine.abandon()
        raise
    rows = engine.limits.max_rows
    _log.info("loaded", extra={"model": bundle.name, "rows": rows, **facts})
    observer.set_capacity(rows, settings.max_waiting, facts["cache_bytes"])
    directions = bundle.directions
    observer.describe(
        version=bundle.version,
        precision=bundle.precision,
        device=settings.device,
        # The number of labels has to be small, so several languages get one label.
        source=_one_or_many(directions.sources),
        target=_one_or_many(directions.targets),
    )

    def reopen(other: Path, in_background: bool) -> ServedModel:
        return load_model(
            other, settings, metrics, budget, bundle.name, in_background=in_background, cache=cache
        )

    return ServedModel(
        name=bundle.name,
        version=bundle.version,
        directions=directions,
        precision=bundle.precision,
        device=settings.device,
        engine=engine,
        translator=Translator(
            engine,
            tokenizer,
            source_language=bundle.source_language,
            directions=None if directions.is_one else directions,
            limits=TranslatorLimits(
                settings.max_texts, settings.max_characters, settings.max_request_characters
            ),
            default_search=search,
            can_align=bundle.can_align,
            attention=AttentionShape.of(bundle),
            calibration=calibration,
            carriers=bundle.carriers,
            cache=None if cache is None else _cache_of(bundle, settings, engine, cache),
        ),
        origin=bundle.origin,
        observer=observer,
        bundle=given.absolute(),
        manifest_sha256=bundle.manifest_sha256,
        has_own_process=has_own_process(settings),
        reopen=reopen if has_own_process(settings) or settings.device != "cpu" else None,
    )


def _cache_of(
    bundle: Bundle, settings: Settings, engine: Engine, cache: ResponseCache
) -> ModelCache:
    """The cached results of a bundle: only of this software, on processors like this one."""
    software = dragoman.__version__, installed_runtime_version()
    machine = settings.device, instruction_sets()
    revision = repr((bundle.manifest_sha256, software, machine, settings.no_shortlist))
    return cache.of_model(bundle.name, revision, engine.limits.vocab_size)


def _one_or_many(languages: Sequence[str]) -> str:
    return languages[0] if len(languages) == 1 else "multiple"


def _manifest(path: Path) -> Bundle:
    """Load only the manifest of a bundle, without verifying its files."""
    try:
        return Bundle.load(path, verify=False)
    except BundleError as exc:
        raise StartupError(str(exc)) from exc


def _opened(
    bundle: Bundle, settings: Settings, niceness: int, *, is_reload: bool
) -> ModelProcess | ProcessGroup:
    def opened(part: Settings, packed: Path | None = None) -> ModelProcess:
        sha256 = bundle.manifest_sha256
        return ModelProcess(
            bundle.name,
            functools.partial(open_model, bundle.path, part, sha256, niceness, packed),
            log_level=settings.log_level,
            log_format=settings.log_format,
            niceness=niceness,
            # At the server's start, its supervisor decides how long to wait.
            open_seconds=_OPEN_SECONDS if is_reload else None,
        )

    parts = divided(settings)
    with folder_of_packed_weights(bundle) as packed:
        if len(parts) == 1:
            return opened(settings, packed)
        return ProcessGroup.open([functools.partial(opened, part, packed) for part in parts])


def _engine_in_own_process(
    process: ModelProcess | ProcessGroup, config: EngineConfig, observer: ModelMetrics
) -> tuple[Engine, dict[str, int]]:
    observer.set_processes(*process.pids)
    config = dataclasses.replace(config, step_seconds=process.step_seconds)
    facts = {"lanes": process.num_lanes, "cache_bytes": process.cache_bytes}
    facts |= {"processes": len(process.pids), "pid": process.pids[0]}
    return Engine(process, config, observer), facts


def _engine_in_this_process(
    bundle: Bundle, settings: Settings, config: EngineConfig, observer: ModelMetrics
) -> tuple[Engine, dict[str, int]]:
    sha256 = bundle.manifest_sha256
    if settings.device == "cpu":
        with folder_of_packed_weights(bundle) as packed:
            model = open_model(bundle.path, settings, sha256, packed=packed)
    else:
        model = open_model(bundle.path, settings, sha256)
    runner = model.runner
    if model.device is not None:
        observer.set_device(model.device)
    config = dataclasses.replace(config, step_seconds=model.step_seconds)
    if (budget := model.encode_token_budget) is not None:
        config = dataclasses.replace(config, encode_token_budget=budget)
    num_lanes = len(runner.lanes) if isinstance(runner, LanedRunner) else 1
    facts = {"lanes": num_lanes, "cache_bytes": model.cache_bytes, "pid": os.getpid()}
    return Engine.of_runner(runner, config, observer, model.scorer), facts


def _distinct(paths: Iterable[Path]) -> list[Path]:
    """The directories without those that resolve to the same one as an earlier directory."""
    distinct: dict[Path, Path] = {}
    for path in paths:
        distinct.setdefault(path.resolve(), path)
    return list(distinct.values())

"""A server of our contract over another engine. `python -m bench.peers.server --help`."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from pathlib import Path
from typing import Annotated

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import typer

from bench.peers import student_backend
from bench.peers.batch_engine import BatchBackend, BatchEngine, BatchPolicy
from bench.peers.ctranslate2_backend import CTranslate2Backend, CTranslate2Options
from model.bundle.bundle import Bundle
from service import process
from service.domain.plan import RunnerLimits
from service.engine.metrics import ModelMetrics
from service.models.registry import Registry
from service.models.served_model import ServedModel
from service.observability import logs
from service.observability.metrics import ServerMetrics
from service.server import Server
from service.settings import Settings
from service.translation.translator import Translator

KINDS = ("ctranslate2", *student_backend.ENGINES)


def peer_model(
    bundle: Bundle,
    backend: BatchBackend,
    policy: BatchPolicy,
    metrics: ServerMetrics,
    name: str,
) -> ServedModel:
    """A model with the bundle's vocabulary and limits, translated by `backend`."""
    config = bundle.config
    limits = RunnerLimits(
        max_rows=policy.max_batch * policy.num_workers,
        max_source_positions=config.num_source_positions,
        max_target_positions=config.num_target_positions,
        top_k=1,
        vocab_size=config.vocab_size,
    )
    observer = ModelMetrics(metrics, name)
    observer.set_capacity(limits.max_rows, policy.max_waiting, 0)
    engine = BatchEngine(backend, policy, limits, observer)
    return ServedModel(
        name=name,
        version=bundle.version,
        directions=bundle.directions,
        precision=bundle.precision,
        device="cpu",
        engine=engine,
        translator=Translator(engine, bundle.tokenizer(), source_language=bundle.source_language),
    )


def ctranslate2_model(
    bundle: Bundle,
    converted: Path,
    options: CTranslate2Options,
    policy: BatchPolicy,
    metrics: ServerMetrics,
) -> ServedModel:
    """The bundle's model in CTranslate2, from a converted model's directory."""
    policy = dataclasses.replace(policy, num_workers=options.inter_threads)
    backend = CTranslate2Backend(converted, options)
    return peer_model(bundle, backend, policy, metrics, "ctranslate2")


def main(
    kind: Annotated[str, typer.Option(help=f"One of {', '.join(KINDS)}.")],
    bundle: Annotated[Path, typer.Option(help="The bundle, for its vocabulary and limits.")],
    converted: Annotated[Path, typer.Option(help="The model in the other engine's format.")],
    port: int = 50061,
    metrics_port: int = 9474,
    max_batch: int = 32,
    window_ms: float = 2.0,
    max_waiting: int = 4096,
    compute_type: str = "int8",
    inter_threads: int = 1,
    intra_threads: int = 1,
    isa: str = "",
) -> None:
    """Serve until SIGTERM."""
    if kind not in KINDS:
        raise typer.BadParameter(f"--kind: there is no {kind!r}; there are {', '.join(KINDS)}")
    logs.configure("info", "json")
    settings = Settings(port=port, metrics_port=metrics_port)
    policy = BatchPolicy(max_batch, window_ms / 1e3, max_waiting=max_waiting)
    metrics = ServerMetrics()
    loaded = Bundle.load(bundle)
    if kind == "ctranslate2":
        options = CTranslate2Options(compute_type, inter_threads, intra_threads, isa)
        model = ctranslate2_model(loaded, converted, options, policy, metrics)
    else:
        policy = dataclasses.replace(policy, num_workers=inter_threads)
        backend = student_backend.StudentBackend(kind, converted, loaded, inter_threads)
        model = peer_model(loaded, backend, policy, metrics, kind)

    async def run() -> None:
        await process.serve(Server(settings, Registry([model]), metrics))

    asyncio.run(run())


if __name__ == "__main__":
    typer.run(main)

"""`dragoman serve`: the gRPC server."""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.exits import missing_runtime
from service.errors import InternalError, StartupError
from service.settings import Settings
from service.settings_sources import environment_name, load_settings

if TYPE_CHECKING:
    from service.api.registry import Registry


def _option(name: str) -> Any:
    """The flag of a setting; its help, default and variable come from `Settings`.

    `load_settings` reads the environment, not typer, so that a bad value is reported the same way
    from any source.
    """
    field = next(field for field in dataclasses.fields(Settings) if field.name == name)
    choices, low, high = (field.metadata[key] for key in ("choices", "minimum", "maximum"))
    facts = [f"one of: {', '.join(choices)}"] if choices else []
    if low is not None:
        facts.append(f"{low:,} to {high:,}")
    facts += [f"env: {environment_name(name)}"]
    if field.default != ():
        facts.append(f"default: {field.default}")
    return typer.Option(
        "--" + name.replace("_", "-"),
        # In parentheses, because typer reads square brackets as markup.
        help=f"{field.metadata['help']} ({'; '.join(facts)})",
        show_default=False,
    )


def serve(
    model: Annotated[list[Path] | None, _option("model")] = None,
    host: Annotated[str | None, _option("host")] = None,
    port: Annotated[int | None, _option("port")] = None,
    metrics_host: Annotated[str | None, _option("metrics_host")] = None,
    metrics_port: Annotated[int | None, _option("metrics_port")] = None,
    device: Annotated[str | None, _option("device")] = None,
    no_cuda_graphs: Annotated[bool | None, _option("no_cuda_graphs")] = None,
    steps_in_flight: Annotated[int | None, _option("steps_in_flight")] = None,
    threads: Annotated[int | None, _option("threads")] = None,
    in_process: Annotated[bool | None, _option("in_process")] = None,
    max_rows: Annotated[int | None, _option("max_rows")] = None,
    max_waiting: Annotated[int | None, _option("max_waiting")] = None,
    max_queue_seconds: Annotated[float | None, _option("max_queue_seconds")] = None,
    max_texts: Annotated[int | None, _option("max_texts")] = None,
    max_characters: Annotated[int | None, _option("max_characters")] = None,
    max_request_characters: Annotated[int | None, _option("max_request_characters")] = None,
    max_message_bytes: Annotated[int | None, _option("max_message_bytes")] = None,
    max_concurrent_requests: Annotated[int | None, _option("max_concurrent_requests")] = None,
    max_connection_calls: Annotated[int | None, _option("max_connection_calls")] = None,
    max_connection_seconds: Annotated[float | None, _option("max_connection_seconds")] = None,
    max_client_metrics: Annotated[int | None, _option("max_client_metrics")] = None,
    stall_seconds: Annotated[float | None, _option("stall_seconds")] = None,
    hang_seconds: Annotated[float | None, _option("hang_seconds")] = None,
    drain_seconds: Annotated[float | None, _option("drain_seconds")] = None,
    log_level: Annotated[str | None, _option("log_level")] = None,
    log_format: Annotated[str | None, _option("log_format")] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file with settings, such as `max_rows = 32`. "
            f"(env: {environment_name('config')})",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve models over gRPC until SIGTERM or Ctrl-C, then finish the calls in progress.

    Flags take precedence over the environment, and the environment over the file.
    """
    # All but `config`, which is not a setting.
    flags = {name: value for name, value in locals().items() if name != "config"}
    from service import descriptors
    from service.observability import logs

    descriptors.open_standard_streams()
    # Errors in the settings are logged too, in the format of the settings if it is known.
    wanted = flags["log_format"] or os.environ.get(environment_name("log_format"))
    logs.configure("info", wanted if wanted in ("json", "text") else "auto")
    logs.log_uncaught()
    try:
        settings = load_settings(flags, os.environ, config)
        logs.configure(settings.log_level, settings.log_format)
        if message := missing_runtime(settings.device):
            raise StartupError(message)
        _serve(settings)
    except (InternalError, StartupError) as exc:
        logging.getLogger("dragoman.server").critical(str(exc))
        raise typer.Exit(1) from exc


def _serve(settings: Settings) -> None:
    import asyncio

    from service import descriptors
    from service.loading import load_models
    from service.observability.metrics import ServerMetrics
    from service.server import Server
    from service.worker import garbage

    descriptors.raise_limit(settings.max_concurrent_requests)
    metrics = ServerMetrics(settings.max_client_metrics)

    def load() -> Registry:
        registry = load_models(settings, metrics)
        garbage.look_less()
        return registry

    async def run() -> None:
        await Server(settings, load, metrics).serve()

    asyncio.run(run())

"""`dragoman serve`: the gRPC server."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from cli.exits import missing_runtime
from cli.stored_models import ModelsDirectory, ModelsUrl, bundles_of
from service.errors import StartupError
from service.settings import DIRECTORIES, Settings
from service.settings_sources import environment_name, load_settings

if TYPE_CHECKING:
    from service.models.registry import Registry

_KEYWORD = inspect.Parameter.KEYWORD_ONLY

_log = logging.getLogger("dragoman.server")


def _option(field: dataclasses.Field[Any]) -> Any:
    """The flag of a setting; its help, default and variable come from `Settings`.

    `load_settings` reads the environment, not typer, so that a bad value is reported the same way
    from any source.
    """
    choices, low, high = (field.metadata[key] for key in ("choices", "minimum", "maximum"))
    facts = [f"one of: {', '.join(choices)}"] if choices else []
    if low is not None:
        facts.append(f"{low:,} to {high:,}")
    facts += [f"env: {environment_name(field.name)}"]
    if field.default not in ((), ""):
        facts.append(f"default: {field.default}")
    return typer.Option(
        "--" + field.name.replace("_", "-"),
        # In parentheses, because typer reads square brackets as markup.
        help=f"{field.metadata['help']} ({'; '.join(facts)})",
        show_default=False,
    )


def serve(
    pairs: list[str] | None,
    models_dir: Path | None,
    models_url: str,
    pull: bool,
    config: Path | None,
    **flags: Any,
) -> None:
    """Serve models over gRPC until SIGTERM or Ctrl-C, then finish the calls in progress.

    Pairs are those of `dragoman pull`; --model names other bundles. Without either, the models that
    came with this installation are served.

    Flags take precedence over the environment, and the environment over the file.
    """
    from service.common import descriptors
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
        if pull and not pairs:
            raise StartupError("--pull needs pairs of languages, such as en-de")
        if pairs:
            bundles = bundles_of(pairs, models_dir, models_url, pulls=pull)
            # A model that the environment or the file names is served by default, not beside these.
            given = tuple(flags["model"] or ())
            settings = dataclasses.replace(settings, model=(*bundles, *given))
    except StartupError as exc:
        _log.critical(str(exc))
        raise typer.Exit(1) from exc
    _serve(settings)


def _parameters() -> Iterator[inspect.Parameter]:
    """The parameters of `serve` for typer: pairs, a flag for each setting, and the file."""
    text = "Pairs of languages whose pulled models are served (en-de de-en)."
    yield _parameter("pairs", list[str], typer.Argument(help=text, show_default=False))
    for field in dataclasses.fields(Settings):
        kind: Any = type(field.default)
        if kind is tuple:
            kind = list[Path] if field.name in DIRECTORIES else list[str]
        yield _parameter(field.name, kind, _option(field))
    text = (
        f"A TOML file with settings, such as `max_rows = 32`. (env: {environment_name('config')})"
    )
    yield inspect.Parameter("models_dir", _KEYWORD, default=None, annotation=ModelsDirectory)
    yield inspect.Parameter("models_url", _KEYWORD, default="", annotation=ModelsUrl)
    wanted = typer.Option("--pull", help="Pull the models of pairs that are missing.")
    yield inspect.Parameter("pull", _KEYWORD, default=False, annotation=Annotated[bool, wanted])
    yield _parameter("config", Path, typer.Option(help=text, show_default=False))


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, _KEYWORD, default=None, annotation=annotation)


serve.__signature__ = inspect.Signature(list(_parameters()))  # type: ignore[attr-defined]


def _serve(settings: Settings) -> NoReturn:
    from service import process
    from service.common import descriptors, garbage
    from service.models.loading import load_models
    from service.observability.metrics import ServerMetrics
    from service.server import Server

    descriptors.raise_limit(settings.max_concurrent_requests)
    metrics = ServerMetrics(settings.max_client_metrics)

    def load() -> Registry:
        registry = load_models(settings, metrics)
        garbage.look_less()
        return registry

    # The objects so far need not be looked at again while the event loop runs.
    garbage.look_less()
    process.run(lambda: Server(settings, load, metrics))

"""Options about the store of pulled models, and the bundles that it has for pairs of languages."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.errors import StartupError

if TYPE_CHECKING:
    from export.store.model_store import ModelStore

_log = logging.getLogger("dragoman.pull")

ModelsDirectory = Annotated[
    Path | None,
    typer.Option(
        "--models-dir",
        metavar="DIR",
        help="Folder of pulled models.",
        envvar="DRAGOMAN_MODELS_DIR",
        show_default="$XDG_CACHE_HOME/dragoman or ~/.cache/dragoman",
    ),
]
ModelsUrl = Annotated[
    str,
    typer.Option(
        "--models-url",
        metavar="URL",
        help="A mirror of Mozilla's bucket: https://, file:// or a directory.",
        envvar="DRAGOMAN_MODELS_URL",
        show_default="Mozilla's bucket",
    ),
]


def models_store(directory: Path | None) -> ModelStore:
    """The store in a directory, or in the usual one."""
    from export.store.model_store import ModelStore, default_directory

    return ModelStore(directory or default_directory())


def store_command(name: str, pairs: Sequence[str], directory: Path | None) -> str:
    """A command for pairs of the store, to be typed."""
    at = [] if directory is None else ["--models-dir", str(directory)]
    return shlex.join(["dragoman", name, *pairs, *at])


def bundles_of(
    pairs: Sequence[str], directory: Path | None, models_url: str, *, pulls: bool
) -> list[Path]:
    """The bundles for pairs of languages, in their order and each once.

    Args:
        directory: the store; None for the usual one.
        models_url: URL to pull missing models from; "" for Mozilla's bucket.

    Raises:
        StartupError: a model is missing; says how to get it.
    """
    from export.errors import ExportError

    store = models_store(directory)
    try:
        missing = [pair for pair in pairs if store.find(pair) is None]
        if missing and pulls:
            _pull(missing, directory, models_url)
        found = {pair: store.find(pair) for pair in pairs}
    except ExportError as exc:
        raise StartupError(str(exc)) from exc
    if missing := [pair for pair, path in found.items() if path is None]:
        raise StartupError(
            f"there is no model for {', '.join(missing)} in {store.directory}: get it with "
            f"`{store_command('pull', missing, directory)}`, or serve with --pull"
        )
    return list(dict.fromkeys(path for path in found.values() if path is not None))


def _pull(pairs: Sequence[str], directory: Path | None, models_url: str) -> None:
    """Pull in a separate process, which frees the memory that an import needs.

    Its lines are logged, in the format of the server's log.
    """
    environment = dict(os.environ)  # a URL may have a password, which arguments would show
    if directory is not None:
        environment["DRAGOMAN_MODELS_DIR"] = str(directory)
    if models_url:
        environment["DRAGOMAN_MODELS_URL"] = models_url
    # -P: no module of the directory that the server was started in.
    command = [sys.executable, "-P", "-m", "cli.main", "pull", *pairs]
    last = ""
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                last = line.strip() or last
                _log.info(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        why = last.removeprefix("dragoman: ")
        raise StartupError(f"{', '.join(pairs)} can't be pulled: {why}")

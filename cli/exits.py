"""Failures of a subcommand: one line on standard error, never a traceback."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from dragoman.client import TranslationError

# How commands call fields of the contract.
_OPTIONS = {"source_language_code": "--from", "target_language_code": "--to"}


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Make SIGTERM end the block with an exception, so that unfinished files are removed."""

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def fail(message: str, code: int = 1) -> NoReturn:
    """Print the message and exit with status `code`."""
    typer.echo(f"dragoman: {message}", err=True)
    raise typer.Exit(code)


def fail_without(what: str, extras: str) -> NoReturn:
    """Fail because `what` is not installed, and name the extras to install."""
    fail(_missing(what, extras))


def missing_runtime(device: str) -> str:
    """The message if no ONNX Runtime is installed, with the extra for `device`; else ""."""
    if importlib.util.find_spec("onnxruntime") is not None:
        return ""
    return _missing("ONNX Runtime", "gpu" if device.startswith("cuda") else "cpu")


def require_runtime(device: str) -> None:
    """Fail if no ONNX Runtime is installed, and name the extra for `device`."""
    if message := missing_runtime(device):
        fail(message)


def _missing(what: str, extras: str) -> str:
    # This project is on no package index.
    return f"{what} is missing: pip install '.[{extras}]' in the folder of Dragoman's source"


def describe(server: str, error: TranslationError) -> str:
    """A line about a failed call to `server`; says what to do if no server answers."""
    from dragoman.tls import COMMAND_NAMES, connection_hint

    said = f"{server}: {error}"
    for field, option in _OPTIONS.items():
        said = said.replace(field, option)
    if error.code.name == "UNAUTHENTICATED":
        return f"{said}; give it in DRAGOMAN_API_KEY"
    # Only a server's own error has a request id, also one of a server that is draining.
    if error.request_id:
        return said
    match error.code.name:
        case "UNAVAILABLE":
            if "errors resolving" in error.message or "resolution failed" in error.message:
                return f"the host in {server} is unknown"
            if hint := connection_hint(error.message, COMMAND_NAMES):
                return f"{server}: {hint}"
            return (
                f'no server at {server} accepts calls; is "dragoman serve" running there, and '
                "ready? (/readyz on its metrics port says why not)"
            )
        case "DEADLINE_EXCEEDED":
            return f"no answer from {server} in time: the server may be busy or missing"
        case "UNIMPLEMENTED":
            return f"{server} is not a Dragoman server, or an old one: {error.message}"
    return said

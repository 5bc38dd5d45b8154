"""How a subcommand ends when something is wrong: one line on standard error, never a traceback."""

from __future__ import annotations

import importlib.util
from typing import NoReturn

import typer


def fail(message: str, code: int = 1) -> NoReturn:
    """Print the message and end with `code`."""
    typer.echo(f"dragoman: {message}", err=True)
    raise typer.Exit(code)


def fail_without(what: str, extras: str) -> NoReturn:
    """Say that `what` is not installed, and which extras bring it."""
    fail(_missing(what, extras))


def missing_runtime(device: str) -> str:
    """What to install where there is no ONNX Runtime for `device`; "" if there is one."""
    if importlib.util.find_spec("onnxruntime") is not None:
        return ""
    return _missing("ONNX Runtime", "gpu" if device.startswith("cuda") else "cpu")


def require_runtime(device: str) -> None:
    """Fail where no ONNX Runtime is installed; name the extra that brings the one for `device`."""
    if message := missing_runtime(device):
        fail(message)


def _missing(what: str, extras: str) -> str:
    # The extras of this project are on no package index.
    return f"{what} is missing: pip install '.[{extras}]' in the folder of Dragoman's source"

"""How a subcommand ends when something is wrong: one line on standard error, never a traceback."""

from __future__ import annotations

from typing import NoReturn

import typer


def fail(message: str, code: int = 1) -> NoReturn:
    """Print the message and end with `code`."""
    typer.echo(f"dragoman: {message}", err=True)
    raise typer.Exit(code)


def fail_without(what: str, extras: str) -> NoReturn:
    """Say that `what` is not installed, and which extras bring it; they are on no package index."""
    fail(f"{what} is missing: pip install '.[{extras}]' in the folder of Dragoman's source")

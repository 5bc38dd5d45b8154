"""How a subcommand ends when something is wrong: one line on standard error, never a traceback."""

from __future__ import annotations

from typing import NoReturn

import typer


def fail(message: str, code: int = 1) -> NoReturn:
    """Print the message and end with `code`."""
    typer.echo(f"dragoman: {message}", err=True)
    raise typer.Exit(code)

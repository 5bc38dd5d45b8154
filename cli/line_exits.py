"""How a command that sends lines to a server ends."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import Any

import typer

from cli.exits import fail
from cli.line_calls import CallFailedError
from cli.standard_input import InputError


def run_lines(work: Coroutine[Any, Any, int]) -> None:
    """Run it, given that it returns how many lines failed.

    Raises:
        typer.Exit: a line failed, or everything; with the command's exit status.
    """
    try:
        num_failed = asyncio.run(work)
    except (CallFailedError, InputError) as exc:
        fail(str(exc))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # Whoever read our output has gone; what Python still wants to flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except OSError as exc:
        fail(f"{exc.filename or 'standard output'}: {exc.strerror or exc}")
    if num_failed:
        raise typer.Exit(1)

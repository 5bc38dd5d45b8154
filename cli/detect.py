"""`dragoman detect`: the languages of texts, by a server."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Annotated

import typer

from cli.exits import fail
from cli.options import CallTimeout, ServerAccess, with_server


@with_server
def detect(
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Texts; default: lines of standard input."),
    ] = None,
    timeout: CallTimeout = 60,
    *,
    server: ServerAccess,
) -> None:
    """Detect the languages of texts.

    Writes for each text the code of the likeliest language, a tab, and its probability among all
    languages that the detector knows; "und" and 0 for a text that shows nothing of its language.
    """
    from cli.line_calls import run_lines

    if not texts and sys.stdin is None:
        fail("standard input: it is closed")
    if not texts and sys.stdin.isatty():
        typer.echo("Type a text on each line; Ctrl-D ends.", err=True)
    run_lines(_run(texts or [], server, timeout))


async def _run(texts: list[str], server: ServerAccess, timeout: float) -> int:
    """Detect, and return the number of failed texts."""
    from cli.line_detection import LineDetector
    from cli.progress import progress
    from cli.standard_input import read_lines

    unit = "text" if texts else "line"
    with progress(shown=not texts) as advance:
        async with LineDetector(server, timeout, unit, advance) as detector:
            if not texts:
                return await detector.run(read_lines(sys.stdin.fileno()))
            return await detector.run(_given(texts))


async def _given(texts: list[str]) -> AsyncIterator[list[bytes]]:
    yield [text.encode(errors="surrogateescape") for text in texts]

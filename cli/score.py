"""`dragoman score`: how probable given translations are, by a server."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.exits import fail
from cli.options import (
    CallTimeout,
    ModelName,
    ServerAccess,
    SourceLanguage,
    TargetLanguage,
    with_server,
)

_LINES_AT_A_TIME = 256


@with_server
def score(
    source_file: Annotated[
        Path | None,
        typer.Argument(metavar="SOURCE", help="A file of texts, one per line.", show_default=False),
    ] = None,
    target_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="TARGET", help="A file of their translations, line by line.", show_default=False
        ),
    ] = None,
    source: SourceLanguage = "",
    target: TargetLanguage = "",
    model: ModelName = "",
    alignments: Annotated[
        bool,
        typer.Option(
            "--alignments",
            help="Add a column: the source token of each token of the translation.",
        ),
    ] = False,
    timeout: CallTimeout = 60,
    *,
    server: ServerAccess,
) -> None:
    """Score translations: two files, or lines "text, tab, translation" on standard input.

    Writes for each line the natural logarithm of the translation's probability, a tab, and the
    number of its tokens, without the end of sentence. The logarithm includes the end of sentence:
    to compare translations of different length, divide it by the number of tokens plus one. For a
    line that can't be scored, it writes an empty line, and the error to standard error; the exit
    status is 1. A text and its translation are passed to the model in one piece.
    """
    from cli.line_calls import run_lines

    if (source_file is None) != (target_file is None):
        fail("give two files, SOURCE and TARGET, or none", 2)
    if source_file is None and sys.stdin is None:
        fail("standard input: it is closed")
    if source_file is None and sys.stdin.isatty():
        typer.echo("Type a text, a tab and a translation on each line; Ctrl-D ends.", err=True)
    arguments = dict(
        server=server,
        timeout=timeout,
        source=source,
        target=target,
        model=model,
        return_alignments="hard" if alignments else None,
    )
    run_lines(_run(arguments, source_file, target_file))


async def _run(
    arguments: dict[str, Any], source_file: Path | None, target_file: Path | None
) -> int:
    """Score, and return the number of failed lines."""
    from cli.line_scoring import LineScorer
    from cli.progress import progress
    from cli.standard_input import read_lines

    with progress(shown=True) as advance:
        async with LineScorer(unit="line", advance=advance, **arguments) as scorer:
            if source_file is None or target_file is None:
                return await scorer.run(read_lines(sys.stdin.fileno()))
            return await scorer.run(_joined(source_file, target_file))


async def _joined(source_file: Path, target_file: Path) -> AsyncIterator[list[bytes]]:
    """The lines of two files with a tab between.

    Raises:
        InputError: the files differ in length, or a line has a tab.
    """
    from cli.standard_input import InputError

    lines: list[bytes] = []
    with source_file.open("rb") as texts, target_file.open("rb") as translations:
        for number, text in enumerate(texts, 1):
            translation = translations.readline()
            if not translation:
                raise InputError(f"{target_file} ends before line {number} of {source_file}")
            for file, line in ((source_file, text), (target_file, translation)):
                if b"\t" in line:
                    raise InputError(f"{file}: there is a tab in line {number}")
            lines.append(text.removesuffix(b"\n") + b"\t" + translation.removesuffix(b"\n"))
            if len(lines) == _LINES_AT_A_TIME:
                yield lines
                lines = []
        if translations.readline():
            raise InputError(f"{source_file} ends before {target_file}")
    if lines:
        yield lines

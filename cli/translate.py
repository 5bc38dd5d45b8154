"""`dragoman translate`: texts from the command line or standard input, through a server."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any

import typer

from cli.exits import fail
from cli.options import (
    CallTimeout,
    ServerAccess,
    SourceLanguage,
    with_call_options,
    with_server,
)


@with_server
@with_call_options
def translate(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Texts to translate. Default: the lines of standard input.",
            show_default=False,
        ),
    ] = None,
    source: SourceLanguage = "",
    stream: Annotated[
        bool, typer.Option("--stream", help="Print each piece as it is made.")
    ] = False,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Token limit of each sentence.", min=1)
    ] = None,
    split_sentences: Annotated[
        bool, typer.Option(help="Split texts into sentences, or translate each in one piece.")
    ] = True,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            help="Alpha: 0 ranks hypotheses by probability alone; higher values favour long ones."
        ),
    ] = None,
    exact: Annotated[
        bool | None,
        typer.Option(help="Search the whole vocabulary, without a shortlist; slower."),
    ] = None,
    n_best: Annotated[
        int | None,
        typer.Option(
            help="Write this many translations of each text: its number, the score and the "
            "translation, with tabs between. Texts are not split.",
        ),
    ] = None,
    mime_type: Annotated[
        str,
        typer.Option(
            metavar="TYPE",
            help="Format of the texts: text/plain, text/html, text/xml or text/markdown. Their "
            "markup is kept.",
        ),
    ] = "",
    timeout: CallTimeout = 60,
    *,
    server: ServerAccess,
    options: dict[str, Any],
) -> None:
    """Translate texts, or standard input line by line.

    Writes exactly one line for each line read, in the same order (with --n-best, several). For a
    line that can't be translated, it writes an empty line, and the error with the line's number to
    standard error; the exit status is 1. If the server fails or refuses the call itself, it stops
    at that line, also with status 1. --from and --to may be left out if the server has only one
    choice.
    """
    from cli.line_calls import run_lines

    if stream and n_best is not None:
        fail("--n-best: a stream has only one translation")
    if stream and mime_type:
        fail("--mime-type: a stream takes plain text only")
    if n_best is not None and mime_type:
        fail("--mime-type: --n-best takes plain text only")
    if options["line_breaks"] not in (None, "keep") and not texts:
        fail(
            "--line-breaks: standard input is translated line by line; give the text as an "
            "argument, or translate a file with `dragoman translate-file`"
        )
    search = replace(options["search"], length_penalty=length_penalty, exact=exact)
    if search.beam_size is not None and (n_best or 0) > search.beam_size:
        fail(f"--n-best: {n_best} translations need a --beam-size of {n_best} or more")
    if not texts and sys.stdin is None:
        fail("standard input: it is closed")
    if not texts and sys.stdin.isatty():
        typer.echo("Type texts to translate, one per line; Ctrl-D ends.", err=True)
    arguments: dict[str, Any] = dict(
        server=server,
        timeout=timeout,
        source=source,
        max_new_tokens=max_new_tokens,
        split_sentences=split_sentences,
        num_hypotheses=n_best,
        **{**options, "search": search},
        **({"mime_type": mime_type} if mime_type else {}),
    )
    run_lines(_run(arguments, texts or [], stream))


async def _run(arguments: dict[str, Any], texts: list[str], stream: bool) -> int:
    """Translate, and return the number of failed texts or lines."""
    from cli.line_translation import LineTranslator
    from cli.progress import progress
    from cli.standard_input import read_lines

    async def given() -> AsyncIterator[list[bytes]]:
        yield [text.encode("utf-8", "surrogateescape") for text in texts]

    unit = "text" if texts else "line"
    with progress(shown=not texts) as advance:
        async with LineTranslator(unit=unit, advance=advance, **arguments) as translator:
            lines = given() if texts else read_lines(sys.stdin.fileno())
            run = translator.run_streaming if stream else translator.run
            return await run(lines)

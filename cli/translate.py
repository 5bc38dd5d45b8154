"""`dragoman translate`: texts from the command line or standard input, through a server."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import fail
from cli.options import DEFAULT_SERVER, Server

if TYPE_CHECKING:
    from cli.line_translation import TranslationJob


def translate(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Texts to translate. None: standard input, line by line.",
            show_default=False,
        ),
    ] = None,
    server: Server = DEFAULT_SERVER,
    source: Annotated[
        str, typer.Option("--from", metavar="CODE", help="Language of the texts, such as en.")
    ] = "",
    target: Annotated[
        str, typer.Option("--to", metavar="CODE", help="Language to translate into, such as de.")
    ] = "",
    model: Annotated[str, typer.Option(metavar="NAME", help="A model of `dragoman models`.")] = "",
    stream: Annotated[bool, typer.Option("--stream", help="Print each piece as it comes.")] = False,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="The most tokens to write for each sentence.", min=1)
    ] = None,
    split_sentences: Annotated[
        bool, typer.Option(help="Split texts into sentences, or translate each in one piece.")
    ] = True,
    beam_size: Annotated[
        int | None, typer.Option(help="Hypotheses that are searched side by side; 1 is greedy.")
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(help="Alpha: 0 ranks hypotheses by bare probability, more favours long ones."),
    ] = None,
    n_best: Annotated[
        int | None,
        typer.Option(
            help="Write so many translations of each text: its number, score and translation, "
            "with tabs between. Texts are not split then.",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that one call may take.", min=0.001)] = 60,
) -> None:
    """Translate texts, or standard input line by line.

    Exactly one line is written for each line read, in the same order (with --n-best: several). For
    a line that can't be translated it is an empty one, the error with its line number goes to
    standard error, and the exit status is 1. If the server goes away or refuses the call itself,
    writing stops at that line, also with status 1. --from and --to may be left out where the server
    has only one choice.
    """
    from cli.line_exits import run_lines
    from cli.line_translation import TranslationJob
    from dragoman.client import Search

    if stream and n_best is not None:
        fail("--n-best: a stream gives only one translation")
    if (n_best or 0) > (beam_size or 1):
        fail(f"--n-best: {n_best} translations take a --beam-size of {n_best} or more")
    if not texts and sys.stdin is None:
        fail("standard input: it is closed")
    if not texts and sys.stdin.isatty():
        typer.echo("Type texts to translate, one a line; Ctrl-D ends.", err=True)
    job = TranslationJob(
        server=server,
        source=source,
        target=target,
        model=model,
        max_new_tokens=max_new_tokens,
        split_sentences=split_sentences,
        timeout=timeout,
        search=Search(beam_size=beam_size, length_penalty=length_penalty),
        num_hypotheses=n_best,
    )
    run_lines(_run(job, texts or [], stream))


async def _run(job: TranslationJob, texts: list[str], stream: bool) -> int:
    """Do it; the number of texts or lines that failed."""
    from cli.line_translation import LineTranslator
    from cli.progress import progress
    from cli.standard_input import read_lines

    async def given() -> AsyncIterator[list[bytes]]:
        yield [text.encode("utf-8", "surrogateescape") for text in texts]

    unit = "text" if texts else "line"
    with progress(shown=not texts) as advance:
        async with LineTranslator(job, unit, advance) as translator:
            lines = given() if texts else read_lines(sys.stdin.fileno())
            run = translator.run_streaming if stream else translator.run
            return await run(lines)

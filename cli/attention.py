"""`dragoman attention`: where a model looks, as a picture or in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.exits import describe, fail, fail_without, require_runtime
from cli.options import (
    CallTimeout,
    ModelName,
    ServerAccess,
    SourceLanguage,
    TargetLanguage,
    with_server,
)
from cli.output_files import write_whole, writes

if TYPE_CHECKING:
    from dragoman.client import AttentionView

_KINDS = ("cross", "encoder-self", "decoder-self")


@writes("output")
@with_server
def attention(
    context: typer.Context,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text, read in one piece.")],
    source: SourceLanguage = "",
    target: TargetLanguage = "",
    model: ModelName = "",
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Use this bundle, without a server.", show_default=False),
    ] = None,
    translation: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="The translation. Default: the model's own.", show_default=False
        ),
    ] = None,
    kind: Annotated[
        str, typer.Option(help="Kind of attention: cross, encoder-self or decoder-self.")
    ] = "cross",
    layer: Annotated[
        int | None,
        typer.Option(help="The layer, from 0. Default: the mean of all.", min=0),
    ] = None,
    head: Annotated[
        int | None, typer.Option(help="The head, from 0. Default: the mean of all.", min=0)
    ] = None,
    words: Annotated[
        bool, typer.Option("--words", help="Show words, not the tokens that the model reads.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="The picture to write, .svg or .png. Default: draw in the terminal."),
    ] = None,
    timeout: CallTimeout = 60,
    *,
    server: ServerAccess,
) -> None:
    """Show where a model looks: a heat map of its attention weights.

    A row is a word of the translation as it was chosen, a column a word of the text: the darker,
    the larger the weight. With --kind encoder-self both are of the text, with decoder-self both are
    of the translation.
    """
    from cli.heat_map import heat_map
    from cli.heat_map_text import text as in_blocks

    if kind.replace("_", "-") not in _KINDS:
        fail(f"--kind must be one of {', '.join(_KINDS)}, not {kind!r}", 2)
    if output is not None and output.suffix not in (".svg", ".png"):
        fail(f"--output must end in .svg or .png, not {output.name!r}", 2)
    if not text.strip():
        fail("the text is empty", 2)
    if translation is not None and not translation.strip():
        fail("--translation is empty: leave it out for the model's own translation", 2)
    given = context.get_parameter_source("server")
    if bundle is not None and given is not None and given.name == "COMMANDLINE":
        fail("--server and --bundle exclude each other", 2)
    if translation is None and (what := _read_differently(text, source)):
        typer.echo(
            f"dragoman: {what}: it is read in one piece here, and the translation may differ from "
            f"that of `dragoman translate`",
            err=True,
        )
    options = dict(
        source=source,
        target=target,
        kinds=[kind.replace("-", "_")],
        layers=[] if layer is None else [layer],
        heads=[] if head is None else [head],
        average_layers=layer is None,
        average_heads=head is None,
    )
    if bundle is not None:
        if model:
            fail("--model is a model of a server: leave it out with --bundle", 2)
        require_runtime("auto")
    view = asyncio.run(
        _answered(server, bundle, timeout, text, translation or "", model=model, **options)
    )
    picture = heat_map(view, view.maps[0], words=words)
    if output is None:
        typer.echo(in_blocks(picture, shutil.get_terminal_size().columns))
        return
    from cli.heat_map_svg import NoFontsError, png, svg

    drawing = svg(picture)
    try:
        content = png(drawing) if output.suffix == ".png" else drawing.encode()
    except ModuleNotFoundError:
        fail_without("resvg, which draws PNG (SVG needs nothing),", "pictures")
    except NoFontsError as exc:
        fail(f"{exc}; write an .svg instead")
    try:
        write_whole(output, [content])
    except OSError as exc:
        fail(f"{output}: {exc.strerror or exc}")
    if translation is None:
        typer.echo(view.translation)
    typer.echo(f"{output}: {picture.title}")


def _read_differently(text: str, language: str) -> str:
    """A note if `dragoman translate` reads the text differently; else ""."""
    from service.translation.segmentation import split_text
    from service.translation.verbatim import is_translatable

    sentences = [segment.text for segment in split_text(text, language) if segment.text]
    if not any(is_translatable(sentence, language) for sentence in sentences):
        return "`dragoman translate` would copy the text"
    return f"the text has {len(sentences)} sentences" if len(sentences) > 1 else ""


async def _answered(
    server: ServerAccess,
    bundle: Path | None,
    timeout: float,
    text: str,
    translation: str,
    **arguments: Any,
) -> AttentionView:
    """The answer of a server, or of one in this process with a bundle; otherwise fails."""
    from cli.batch.inputs import JobError
    from cli.batch.run import JobServers
    from dragoman.client import TranslationError
    from model.bundle.manifest import BundleError
    from service.errors import DragomanError

    try:
        async with contextlib.AsyncExitStack() as stack:
            if bundle is None:
                client = await stack.enter_async_context(server.async_client(timeout))
            else:
                own = JobServers((), (bundle,)).opened()
                [client] = (await stack.enter_async_context(own)).values()
            return await client.attention(text, translation, **arguments)
    except TranslationError as exc:
        fail(_in_options(describe(server.address if bundle is None else str(bundle), exc)))
    except (BundleError, DragomanError, JobError, ValueError) as exc:
        fail(_in_options(str(exc)))


def _in_options(message: str) -> str:
    """An error of the contract's fields, in the command's options."""
    for field, option in (("layers", "--layer"), ("heads", "--head"), ("kinds", "--kind")):
        message = message.replace(f"options.{field}:", f"{option}:")
    return message

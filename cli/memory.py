"""`dragoman memory`: makes, fills, lists and deletes the translation memories of a server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import fail
from cli.options import CallTimeout, ServerAccess, SourceLanguage, TargetLanguage, with_server
from cli.output_files import write_whole, writes

if TYPE_CHECKING:
    from xml.etree import ElementTree

memory_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,  # as in cli.main
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Make, fill, list and delete the translation memories of a server "
    "(`dragoman serve --memory-store FILE`).",
)

# Bytes of the units of one call: far below the limit of a message.
_PORTION_BYTES = 1_000_000

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the memory.")]


@memory_app.command()
@with_server
def create(name: Name, server: ServerAccess) -> None:
    """Make an empty memory."""
    with server.client() as client:
        client.create_memory(name)


@memory_app.command("list")
@with_server
def list_(
    server: ServerAccess,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the memories, with their numbers of pairs."""
    import dataclasses

    with server.client() as client:
        found = client.list_memories()
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(memory) for memory in found], indent=2))
        return
    for memory in found:
        typer.echo(f"{memory.name}\t{memory.num_pairs:,}")


@memory_app.command()
@with_server
def add(
    name: Name,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A text, best a sentence.")],
    translation: Annotated[str, typer.Argument(metavar="TRANSLATION", help="Its translation.")],
    source: SourceLanguage,
    target: TargetLanguage,
    server: ServerAccess,
) -> None:
    """Add a translation, or correct the one that the memory has."""
    with server.client() as client:
        client.add_translation(name, text, translation, source=source, target=target)


@memory_app.command("import")
@with_server
def import_(
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The TMX file, of any size.")],
    server: ServerAccess,
    source: SourceLanguage = "",
    target: TargetLanguage = "",
    timeout: CallTimeout = 120,
) -> None:
    """Add the translations of a TMX file.

    It is sent in portions. After an interruption, the same command adds the rest. --from and --to
    take only these languages of the file.
    """
    num_added = num_replaced = num_skipped = 0
    is_whole = False
    with server.client(timeout) as client:
        try:
            for portion in _portions(file):
                made = client.import_memory(name, portion, source=source, target=target)
                num_added += made.num_added
                num_replaced += made.num_replaced
                num_skipped += made.num_skipped
            is_whole = True
        finally:
            if is_whole or num_added or num_replaced:  # what the portions before a failure brought
                counts = f"{num_added:,} added, {num_replaced:,} replaced, {num_skipped:,} left out"
                typer.echo(counts)


@memory_app.command()
@writes("output")
@with_server
def export(
    name: Name,
    server: ServerAccess,
    output: Annotated[
        Path | None, typer.Option(help="File to write. Default: standard output.")
    ] = None,
    timeout: CallTimeout = 3600,
) -> None:
    """Write a memory as TMX."""
    with server.client(timeout) as client:
        parts = client.export_memory(name)
        try:
            if output is None:
                for part in parts:
                    sys.stdout.buffer.write(part)
                return
            write_whole(output, parts)
        except OSError as exc:
            fail(f"{exc.filename or output}: {exc.strerror or exc}")


@memory_app.command()
@with_server
def delete(name: Name, server: ServerAccess) -> None:
    """Delete a memory."""
    with server.client() as client:
        client.delete_memory(name)


def _events(file: Path) -> Iterator[tuple[str, ElementTree.Element]]:
    """The places of a file's elements. A file that can't be read ends the command."""
    from xml.etree import ElementTree

    try:
        yield from ElementTree.iterparse(file, events=("start", "end"))
    except ElementTree.ParseError as exc:
        fail(f"{file}: is no well-formed XML: {exc}")
    except OSError as exc:
        fail(f"{file}: {exc.strerror or exc}")
    except (LookupError, ValueError) as exc:  # its encoding
        fail(f"{file}: {exc}")


def _portions(file: Path) -> Iterator[bytes]:
    """The units of a TMX file, in small TMX files with the same header."""
    from xml.etree import ElementTree

    header, units, size = "<header/>", list[str](), 0

    def written() -> bytes:
        return f"<tmx>{header}<body>{''.join(units)}</body></tmx>".encode()

    root: ElementTree.Element | None = None
    body: ElementTree.Element | None = None
    for event, element in _events(file):
        if root is None:
            root = element
            if element.tag.rpartition("}")[2] != "tmx":
                fail(f"{file}: is no TMX file: its first tag is not <tmx>")
        name = element.tag.rpartition("}")[2]
        if name == "body":
            body = element
        elif event == "end" and name == "header":
            header = ElementTree.tostring(element, encoding="unicode")
        elif event == "end" and name == "tu":
            element.tail = ""
            units.append(ElementTree.tostring(element, encoding="unicode"))
            size += len(units[-1])
            if body is not None:
                body.clear()
            if size > _PORTION_BYTES:
                yield written()
                units, size = [], 0
    if units:
        yield written()

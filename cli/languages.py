"""`dragoman languages`: the directions of a server."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cli.options import ServerAccess, with_server


@with_server
def languages(
    server: ServerAccess,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the languages of a running server, as BCP-47 codes.

    The models of a line translate from each language on its left into each other one on its right,
    directly or through a third language.
    """
    import dataclasses

    with server.client(timeout=10.0) as client:
        found = client.list_languages()

    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(group) for group in found], indent=2))
        return

    from rich.console import Console
    from rich.table import Table

    table = Table("from", "into", "models", box=None)
    for group in found:
        sources, targets = group.source_languages, group.target_languages
        if len(sources) == 1:  # no group translates a language into itself
            targets = tuple(code for code in targets if code != sources[0])
        into = "each other" if sources == targets else " ".join(targets)
        through = f"through {group.pivot_language}" if group.pivot_language else ""
        table.add_row(" ".join(sources), into, " ".join(group.models) or through)
    Console().print(table)

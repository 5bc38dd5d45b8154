"""`dragoman models`: the models of a server."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cli.exits import describe, fail
from cli.options import DEFAULT_SERVER, Server


def models(
    server: Server = DEFAULT_SERVER,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the models of a running server, the preferred one first."""
    import dataclasses

    from dragoman.client import Client, ModelInfo, TranslationError

    try:
        with Client(server, timeout=10.0) as client:
            found = client.list_models()
    except TranslationError as exc:
        fail(describe(server, exc))

    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(model) for model in found], indent=2))
        return

    from rich.console import Console
    from rich.table import Table

    def row(model: ModelInfo) -> tuple[str, ...]:
        pairs = ", ".join(f"{source} to {target}" for source, target in model.language_pairs)
        pairs = pairs or f"{len(model.source_languages)} to {len(model.target_languages)} languages"
        tokens = f"{model.limits.max_source_tokens} to {model.limits.max_target_tokens}"
        beam_size = model.default_search.beam_size or 1
        search = "greedy" if beam_size == 1 else f"beam {beam_size}"
        return (model.name, model.version, pairs, model.precision, model.device, tokens, search)

    columns = ("model", "version", "languages", "precision", "device", "tokens", "search")
    table = Table(*columns, box=None)
    for model in found:
        table.add_row(*row(model))
    Console().print(table)

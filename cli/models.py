"""`dragoman models`: the models of a server, or of bundle directories."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import fail
from cli.options import ServerAccess, with_server

if TYPE_CHECKING:
    from dragoman.client import ModelInfo

_WIDEST = 2000  # of a table, whatever the screen


@dataclasses.dataclass(frozen=True)
class BundleFacts:
    """Facts from a bundle's files, without a server.

    Attributes:
        name, version, precision, origin: as in `dragoman.client.ModelInfo`.
        source_languages, target_languages: BCP-47 codes; it translates from each into every other.
        disk_mib: size of its files.
        memory_mib: memory of the model on a CPU with the default settings, for usual texts.
        max_memory_mib: memory with the longest texts in all rows.
    """

    name: str
    version: str
    path: str
    source_languages: tuple[str, ...]
    target_languages: tuple[str, ...]
    precision: str
    disk_mib: int
    memory_mib: int
    max_memory_mib: int
    origin: str


@with_server
def models(
    server: ServerAccess,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="A bundle directory to describe instead of a server's models; repeatable.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the models of a running server, the preferred one first, or those in directories."""
    if model:
        bundles = [_facts(path) for path in model]
        sizes = ("disk", "memory")
        _print(bundles, [_bundle_row(bundle) for bundle in bundles], sizes, as_json)
    else:
        with server.client(timeout=10.0) as client:
            found = client.list_models()
        _print(
            found, [_row(each) for each in found], ("device", "state", "tokens", "search"), as_json
        )


def _facts(path: Path) -> BundleFacts:
    from model.bundle.bundle import Bundle
    from model.bundle.manifest import BundleError
    from service.settings import Settings
    from service.worker.memory import MIB, memory_need

    try:
        bundle = Bundle.load(path, verify=False)
    except BundleError as exc:
        fail(str(exc))
    need = memory_need(bundle, Settings(), own_process=True)
    return BundleFacts(
        name=bundle.name,
        version=bundle.version,
        path=str(path),
        source_languages=bundle.directions.sources,
        target_languages=bundle.directions.targets,
        precision=bundle.precision,
        disk_mib=-(-bundle.num_bytes // MIB),
        memory_mib=-(-need.typical // MIB),
        max_memory_mib=-(-need.most // MIB),
        origin=bundle.origin,
    )


def _bundle_row(bundle: BundleFacts) -> tuple[str, ...]:
    sources, targets = bundle.source_languages, bundle.target_languages
    is_one = len(sources) == len(targets) == 1
    languages = _languages([(sources[0], targets[0])] if is_one else [], sources, targets)
    return (
        *(bundle.name, bundle.version, languages, bundle.precision),
        f"{bundle.disk_mib} MiB",
        f"{bundle.memory_mib} to {bundle.max_memory_mib} MiB",
        bundle.origin,
    )


def _row(model: ModelInfo) -> tuple[str, ...]:
    languages = _languages(model.language_pairs, model.source_languages, model.target_languages)
    beam_size = model.default_search.beam_size or 1
    return (
        *(model.name, model.version, languages, model.precision, model.device, model.state),
        f"{model.limits.max_source_tokens} to {model.limits.max_target_tokens}",
        "greedy" if beam_size == 1 else f"beam {beam_size}",
        model.origin,
    )


def _languages(
    pairs: Sequence[tuple[str, str]], sources: Sequence[str], targets: Sequence[str]
) -> str:
    """Each direction, or the numbers of languages if there are too many."""
    listed = ", ".join(f"{source} to {target}" for source, target in pairs)
    return listed or f"{len(sources)} to {len(targets)} languages"


def _print(
    found: Sequence[ModelInfo | BundleFacts],
    rows: Sequence[tuple[str, ...]],
    columns: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print models as JSON, or `rows`, with these columns before their origin.

    A row is a line, whatever reads it, unless the screen is too narrow: then it is several.
    """
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(each) for each in found], indent=2))
        return

    from rich.console import Console
    from rich.table import Table

    names = ("model", "version", "languages", "precision", *columns, "origin")
    table = Table(*names, box=None)
    for row in rows:
        table.add_row(*row)
    screen, wide = Console(), Console(width=_WIDEST)
    if not screen.is_terminal or wide.measure(table).maximum <= screen.width:
        wide.print(table)
        return
    for row in rows:
        _print_lines(names, row)


def _print_lines(names: Sequence[str], row: Sequence[str]) -> None:
    """A row with a line for each column."""
    typer.echo(row[0])
    for name, value in zip(names[1:], row[1:], strict=True):
        if value:
            typer.echo(f"  {name:<{max(map(len, names))}}  {value}")

"""`dragoman keys`: makes, lists and revokes the API keys of a server."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.exits import fail

if TYPE_CHECKING:
    from service.access.keys import StoredKey
    from service.access.principal import Principal

keys_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,  # as in cli.main
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Make, list and revoke the API keys of a server (`dragoman serve --keys FILE`).",
)

KeyFile = Annotated[
    Path,
    typer.Option(
        "--keys", metavar="FILE", help="The file of keys.", envvar="DRAGOMAN_KEYS",
        show_default=False,
    ),
]  # fmt: skip


@keys_app.command()
def add(
    name: Annotated[str, typer.Argument(help="Name of the key in logs, metrics and `list`.")],
    keys: KeyFile,
    tenant: Annotated[
        str,
        typer.Option(
            help="Customer or team that owns the key. A tenant's keys count as one client."
        ),
    ] = "",
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Model that the key may use; repeatable. Default: all.", show_default=False
        ),
    ] = None,
    call: Annotated[
        list[str] | None,
        typer.Option(
            help="Call that the key may make, such as Translate; repeatable. Default: all.",
            show_default=False,
        ),
    ] = None,
    max_priority: Annotated[
        str,
        typer.Option(help="Highest priority of its calls: low, normal or high."),
    ] = "",
    requests_per_minute: Annotated[
        int | None,
        typer.Option(min=0, help="Calls in a minute.", show_default="no limit"),
    ] = None,
    characters_per_day: Annotated[
        int | None,
        typer.Option(
            min=0, help="Characters of source text in a day (UTC).", show_default="no limit"
        ),
    ] = None,
    characters_per_month: Annotated[
        int | None,
        typer.Option(
            min=0, help="Characters of source text in a month (UTC).", show_default="no limit"
        ),
    ] = None,
    expires: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Time when the key expires, such as 2027-01-31 or 2027-01-31T12:00:00Z (UTC). "
            "Default: never.",
        ),
    ] = "",
) -> None:
    """Make a key, add it to the file and print it.

    Keep what is printed: the file has only a hash of the key. A running server accepts the key
    within seconds.
    """
    from service.access.keys import new_key, to_line

    values = {
        "name": name,
        "tenant": tenant or None,
        "models": model or None,
        "calls": _known_calls(call or []) or None,
        "max_priority": max_priority,
        "requests_per_minute": requests_per_minute,
        "characters_per_day": characters_per_day,
        "characters_per_month": characters_per_month,
        "expires": expires or None,
    }
    key, stored = new_key(_principal(values))
    with _changed(keys) as found:
        if any(other.principal.name == name for other in found.values()):
            fail(f"{keys} has a key {name!r} already; revoke it first, or choose another name")
        found[stored.id] = stored
        assert key not in to_line(stored)
    typer.echo(key)


@keys_app.command("list")
def list_keys(
    keys: KeyFile,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the keys of the file, by name. The keys themselves are not stored."""
    from service.access.key_file import KeyFileError, read_keys
    from service.access.keys import to_line

    try:
        found = [json.loads(to_line(key)) for key in read_keys(keys).values()]
    except KeyFileError as exc:
        fail(str(exc))
    if as_json:
        hidden = ({k: v for k, v in each.items() if k != "sha256"} for each in found)
        typer.echo(json.dumps(list(hidden), indent=2))
        return
    _print_table(found)


@keys_app.command()
def revoke(
    name: Annotated[str, typer.Argument(help="The name of the key.")], keys: KeyFile
) -> None:
    """Remove a key from the file. A running server refuses it within seconds."""
    if not keys.exists():
        fail(f"{keys}: there is no such file")
    with _changed(keys) as found:
        matching = [key.id for key in found.values() if key.principal.name == name]
        if not matching:
            fail(f"{keys} has no key {name!r}")
        del found[matching[0]]


@contextlib.contextmanager
def _changed(path: Path) -> Iterator[dict[str, StoredKey]]:
    """The keys of the file, which are written when the block ends; other writers wait."""
    from service.access.key_file import KeyFileError, locked, read_keys, write_keys

    try:
        with locked(path):
            found = read_keys(path) if path.exists() else {}
            yield found
            write_keys(path, found)
    except KeyFileError as exc:
        fail(str(exc))


def _principal(values: dict[str, Any]) -> Principal:
    """The holder of a new key, checked as in the file."""
    from service.access.keys import principal_of

    try:
        return principal_of({name: value for name, value in values.items() if value is not None})
    except ValueError as exc:
        fail(str(exc), 2)


def _known_calls(names: list[str]) -> list[str]:
    from dragoman.v1 import translation_pb2 as pb

    service = pb.DESCRIPTOR.services_by_name["TranslationService"]
    known = [method.name for method in service.methods]
    for name in names:
        if name not in known:
            fail(f"--call: there is no call {name!r}; there are {', '.join(known)}", 2)
    return names


def _print_table(found: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from service.access.keys import moment_of

    columns = (
        "name",
        "id",
        "tenant",
        "models",
        "calls",
        "priority",
        "a minute",
        "a day",
        "a month",
    )
    table = Table(*columns, "expires", box=None)
    for each in found:
        expires = each.get("expires", "")
        if expires and moment_of(expires) <= time.time():
            expires += " (expired)"
        table.add_row(
            each["name"],
            each["id"],
            each.get("tenant", ""),
            ", ".join(each.get("models", ["all"])),
            ", ".join(each.get("calls", ["all"])),
            each.get("max_priority", "any"),
            *(
                f"{each[name]:,}" if name in each else ""
                for name in ("requests_per_minute", "characters_per_day", "characters_per_month")
            ),
            expires,
        )
    console = Console()
    (console if console.is_terminal else Console(width=2000)).print(table)

"""Command-line options that several subcommands have."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.exits import fail

# That of `dragoman.addresses`, whose import brings gRPC: help has to be quick.
DEFAULT_SERVER = "127.0.0.1:50051"


def _check_server(text: str) -> str:
    from dragoman.addresses import server_address  # brings gRPC

    try:
        return server_address(text)
    except ValueError as exc:
        fail(f"--server: {exc}", 2)


Server = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        help="The server to ask; dns:///NAME:PORT spreads calls over all its addresses.",
        envvar="DRAGOMAN_SERVER",
        callback=_check_server,
    ),
]

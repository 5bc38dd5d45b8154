"""Command-line options of several subcommands."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.exits import fail

# As in `dragoman.addresses`, which imports gRPC: too slow for --help.
DEFAULT_SERVER = "127.0.0.1:50051"


def _check_server(text: str) -> str:
    from dragoman.addresses import server_address

    try:
        return server_address(text)
    except ValueError as exc:
        fail(f"--server: {exc}", 2)


ApiKey = Annotated[
    str,
    typer.Option(
        metavar="KEY",
        help="An API key for the server. Other users of this machine see options in the list of "
        "processes: prefer the variable.",
        envvar="DRAGOMAN_API_KEY",
        show_default=False,
    ),
]


Server = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        help="The server; dns:///NAME:PORT balances calls over all addresses of NAME.",
        envvar="DRAGOMAN_SERVER",
        callback=_check_server,
    ),
]

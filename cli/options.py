"""Command-line options that several subcommands have."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_SERVER = "127.0.0.1:50051"

Server = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        help="The server to ask; dns:///NAME:PORT spreads calls over all its addresses.",
        envvar="DRAGOMAN_SERVER",
    ),
]

"""`dragoman reload`: replaces models in a running server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cli.exits import fail

_PORT = "50060"


def reload(
    name: Annotated[
        str, typer.Argument(help="The model; by default every model with a changed bundle.")
    ] = "",
    path: Annotated[
        Path | None,
        typer.Option(
            help="The new version's bundle directory, as the server sees it; by default the "
            "directory of the present version."
        ),
    ] = None,
    allow_fewer_languages: Annotated[
        bool, typer.Option(help="Accept a version that lacks directions of the present one.")
    ] = False,
    admin: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="The server's admin port (`dragoman serve --admin-port`).",
            envvar="DRAGOMAN_ADMIN",
            show_default="127.0.0.1, and the port of DRAGOMAN_ADMIN_PORT or 50060",
        ),
    ] = "",
) -> None:
    """Replace models in a running server, without losing a call.

    Ends with status 1 if a new version was refused; the old one then continues to serve.
    """
    import grpc

    from dragoman.v1 import admin_pb2, admin_pb2_grpc

    admin = admin or f"127.0.0.1:{os.environ.get('DRAGOMAN_ADMIN_PORT', _PORT)}"
    request = admin_pb2.ReloadModelRequest(
        name=name,
        path="" if path is None else str(path.absolute()),
        allow_fewer_languages=allow_fewer_languages,
    )
    try:
        with grpc.insecure_channel(admin) as channel:
            # No timeout: opening a large model takes long, and the server bounds the rest.
            response = admin_pb2_grpc.AdminServiceStub(channel).ReloadModel(request)
    except grpc.RpcError as exc:
        message = exc.details() or exc.code().name
        if exc.code() is grpc.StatusCode.UNAVAILABLE and "server is" not in message:
            message = f'no admin port at {admin}: start "dragoman serve --admin-port PORT"'
        fail(message)
    for model in response.models:
        if model.was_replaced:
            typer.echo(f"{model.name}: version {model.previous_version} -> {model.version}")
        else:
            unchanged = f"its bundle is unchanged, version {model.version}"
            typer.echo(f"model {model.name} was not replaced: {unchanged}")

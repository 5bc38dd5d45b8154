"""AdminService, and the server on a loopback port of its own that has it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import grpc

from dragoman.v1 import admin_pb2 as pb
from dragoman.v1 import admin_pb2_grpc
from service.calls.call_context import GrpcContext
from service.errors import FailedPreconditionError, StartupError, UnavailableError
from service.fronts.status import status_of
from service.models.lifecycle.reloads import Reloads
from service.ports.grpc.accepting_server import AcceptingServer
from service.ports.grpc.binding import bind

# Not a setting: there is no authentication.
_HOST = "127.0.0.1"

_log = logging.getLogger("dragoman.admin")


class AdminServicer(admin_pb2_grpc.AdminServiceServicer):
    """Answers administrators' calls.

    Attributes:
        reloads: reloads of the server; None while models are loading: calls end with UNAVAILABLE.
    """

    def __init__(self) -> None:
        self.reloads: Reloads[Any] | None = None

    async def ReloadModel(
        self, request: pb.ReloadModelRequest, context: GrpcContext
    ) -> pb.ReloadModelResponse:
        """Replace one model, or all whose bundles have changed."""
        try:
            return await self._reload(request)
        except Exception as exc:
            status = status_of(exc, "an error of the admin port")
            if status.code == grpc.StatusCode.INTERNAL.value[0]:
                _log.exception("ReloadModel failed")
            [code] = [code for code in grpc.StatusCode if code.value[0] == status.code]
            await context.abort(code, status.message)
            raise AssertionError("abort raises") from exc

    async def _reload(self, request: pb.ReloadModelRequest) -> pb.ReloadModelResponse:
        if self.reloads is None:
            raise UnavailableError("the server is starting: its models are not loaded yet")
        outcomes = await self.reloads.reload(
            request.name,
            Path(request.path) if request.path else None,
            allow_fewer_languages=request.allow_fewer_languages,
        )
        if errors := [outcome.error for outcome in outcomes if outcome.error]:
            raise FailedPreconditionError("; ".join(errors))
        return pb.ReloadModelResponse(
            models=[
                pb.ReloadedModel(
                    name=outcome.model,
                    previous_version=outcome.previous_version,
                    version=outcome.version,
                    was_replaced=outcome.was_replaced,
                )
                for outcome in outcomes
            ]
        )


class AdminServer:
    """A gRPC server of `AdminService` on loopback.

    Attributes:
        port: the bound port.
        servicer: answers the calls.

    Raises:
        StartupError: the port can't be used.
    """

    def __init__(self, port: int) -> None:
        self.servicer = AdminServicer()
        self._grpc = AcceptingServer(options=[("grpc.so_reuseport", 0)])
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self.servicer, self._grpc)
        try:
            self.port = bind(self._grpc, _HOST, port)
        except StartupError as exc:
            raise StartupError(
                f"cannot listen on {_HOST}:{port}: the port is in use; choose another with "
                "--admin-port"
            ) from exc

    @property
    def address(self) -> str:
        """The address of the port, HOST:PORT."""
        return f"{_HOST}:{self.port}"

    async def start(self) -> None:
        """Start to answer calls."""
        await self._grpc.start()

    async def stop(self) -> None:
        """Stop at once."""
        await self._grpc.stop(None)

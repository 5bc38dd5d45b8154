"""Google's contract on the gRPC port, with the limits and log lines of our own."""

from __future__ import annotations

from typing import Any

import grpc

from service.calls.backend import Backend
from service.calls.call_context import GrpcContext
from service.calls.request_parsing import RequestParser
from service.fronts.google_v3.calls import CALLS, GoogleCall
from service.fronts.google_v3.messages import POOL, SERVICE
from service.fronts.grpc.interceptor import GrpcFront

NAME = "google-v3"
"""Name of this front in the log."""


def google_front(own: RequestParser) -> GrpcFront:
    """Google's contract, with our own limits of entries."""
    parser = RequestParser(SERVICE, own.max_entries, POOL)
    return GrpcFront(parser, NAME, {name: call.method for name, call in CALLS.items()})


def add_google_v3(server: grpc.aio.Server, backend: Backend) -> None:
    """Serve Google's contract on a server."""

    def handler(call: GoogleCall) -> Any:
        async def answer(request: Any, context: GrpcContext) -> Any:
            return await call.answer(request, backend)

        return grpc.unary_unary_rpc_method_handler(
            answer, response_serializer=lambda answer: answer.SerializeToString()
        )

    handlers = {name: handler(call) for name, call in CALLS.items()}
    server.add_registered_method_handlers(SERVICE, handlers)

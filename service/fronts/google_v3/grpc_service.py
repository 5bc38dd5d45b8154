"""Google's contract on the gRPC port: each call runs as a call of ours."""

from __future__ import annotations

from typing import Any

import grpc

from service.calls.call_context import GrpcContext, current_call
from service.calls.call_tracker import CallTracker
from service.calls.request_parsing import RequestParser
from service.common.fairness import turn
from service.fronts.dragoman.servicer import TranslationServicer
from service.fronts.front_call import FrontCall
from service.fronts.google_v3.calls import CALLS, GoogleCall
from service.fronts.google_v3.messages import POOL, SERVICE
from service.fronts.grpc.interceptor import GrpcCall

NAME = "google-v3"
"""Of this front, in the log."""


def add_google_v3(
    server: grpc.aio.Server, servicer: TranslationServicer, tracker: CallTracker
) -> None:
    """Serve Google's contract.

    Args:
        server: on this one.
        servicer: answers the contract's calls.
        tracker: of all calls.
    """
    parser = RequestParser(SERVICE, tracker.parser.max_entries, POOL)
    handlers: dict[str, Any] = {
        name: grpc.unary_unary_rpc_method_handler(
            _behaviour(name, call, servicer, tracker, parser),
            response_serializer=lambda answer: answer.SerializeToString(),
        )
        for name, call in CALLS.items()
    }
    server.add_registered_method_handlers(SERVICE, handlers)


def _behaviour(
    name: str,
    call: GoogleCall,
    servicer: TranslationServicer,
    tracker: CallTracker,
    parser: RequestParser,
) -> Any:
    async def answer(data: bytes, context: GrpcContext) -> Any:
        running = GrpcCall(tracker, call.method, context)
        with running:
            current_call().facts["front"] = NAME
            await running.authenticate()
            running.take_quotas(len(data))
            request = parser.parse(name, data)
            await turn()
            answered = await call.answer(request, FrontCall(servicer, context, {}))
            return running.leaving(answered)
        del data, context
        await running.abort()

    return answer

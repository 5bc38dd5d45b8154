"""The targets by name: parsers, and the ports of a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.robustness.fuzz import (
    configuration,
    credentials,
    document_bombs,
    documents,
    foreign_models,
    markup,
    requests,
    texts,
)
from tests.robustness.fuzz.grpc_calls import GrpcCalls
from tests.robustness.fuzz.http2_frames import Http2Frames
from tests.robustness.fuzz.http_requests import HttpRequests
from tests.robustness.fuzz.served import ServerTarget

PARSERS: Mapping[str, Callable[[], Any]] = {
    make.name: make
    for module in (
        markup,
        texts,
        documents,
        document_bombs,
        requests,
        configuration,
        credentials,
        foreign_models,
    )
    for make in module.TARGETS
}
SERVED: Mapping[str, Callable[[], ServerTarget[Any]]] = {
    GrpcCalls.name: GrpcCalls,
    HttpRequests.name: HttpRequests,
    Http2Frames.name: Http2Frames,
}

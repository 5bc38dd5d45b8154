"""The paths of all fronts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from service.api.http.fronts.deepl import DeepL
from service.api.http.fronts.endpoint import Front, FrontEndpoint, FrontServer
from service.api.http.fronts.google_v2 import GoogleV2
from service.api.http.fronts.google_v3 import GoogleV3
from service.api.http.fronts.libretranslate import LibreTranslate


def front_routes(server: FrontServer, why_not_ready: Callable[[], str]) -> Iterator[Route]:
    """A route for each operation of each front.

    Args:
        server: what they run on.
        why_not_ready: the reason why the server accepts no requests, or "".
    """
    fronts: list[Front] = [
        LibreTranslate(needs_keys=not server.tracker.access.is_open),
        DeepL(),
        GoogleV2(),
        GoogleV3(),
    ]
    for front in fronts:
        for (verb, path), operation in front.operations().items():
            yield Route(path, FrontEndpoint(front, operation, server), methods=[verb])

    async def health(request: Request) -> Response:
        reason = why_not_ready()
        return JSONResponse({"status": reason or "ok"}, 503 if reason else 200)

    yield Route("/health", health, methods=["GET"])

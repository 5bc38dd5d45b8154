"""The paths of all fronts, and their description."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from service.fronts.deepl import DeepL
from service.fronts.google_v2 import GoogleV2
from service.fronts.google_v3.rest import GoogleV3
from service.fronts.http.endpoint import FrontServer
from service.fronts.http.front_endpoint import Front, FrontEndpoint
from service.fronts.libretranslate import LibreTranslate
from service.ports.http.openapi.document import document


def all_fronts(needs_keys: bool, max_file_bytes: int) -> list[Front]:
    """The fronts of a server."""
    return [
        LibreTranslate(needs_keys, max_file_bytes),
        DeepL(),
        GoogleV2(),
        GoogleV3(),
    ]


def front_of(path: str, fronts: Iterable[Front]) -> Front | None:
    """The front that a path would belong to, if it had it; None if there is none."""
    lengths = {
        len(prefix): front
        for front in fronts
        for prefix in front.prefixes
        if f"{path}/".startswith(f"{prefix}/")
    }
    return lengths[max(lengths)] if lengths else None


def front_routes(
    fronts: Sequence[Front], server: FrontServer, why_not_ready: Callable[[], str]
) -> Iterator[Route]:
    """A route for each operation of each front; `why_not_ready` is "" on a server that is."""
    for front in fronts:
        for (verb, path), operation in front.operations().items():
            yield Route(path, FrontEndpoint(server, front, operation), methods=[verb])

    needs_keys = not server.tracker.access.is_open
    described = json.dumps(document(fronts, needs_keys), ensure_ascii=False).encode()

    async def describe(request: Request) -> Response:
        return Response(described, media_type="application/json")

    async def health(request: Request) -> Response:
        reason = why_not_ready()
        return JSONResponse({"status": reason or "ok"}, 503 if reason else 200)

    yield Route("/openapi.json", describe, methods=["GET"])
    yield Route("/spec", describe, methods=["GET"])  # as LibreTranslate calls it
    yield Route("/health", health, methods=["GET"])

"""The pages at / and /docs: files read once, with a strict content security policy."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FOLDER = Path(__file__).resolve().parent / "page"
# Everything comes from this server, and nothing is inline.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        *("script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' blob:"),
        *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
        "require-trusted-types-for 'script'",
    )
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-cache",  # asks again each time, and mostly gets a 304
}
_PATHS = {"index.html": "", "docs.html": "docs"}
_TYPES = {".js": "text/javascript", ".svg": "image/svg+xml"}


def page_routes() -> Iterator[Route]:
    """A route for each file; "/" for index.html, and "/docs" for docs.html."""
    for path in sorted(_FOLDER.iterdir()):
        name = _PATHS.get(path.name, path.name)
        yield Route(f"/{name}", _file(path), methods=["GET"])


def _file(path: Path) -> Callable[[Request], Awaitable[Response]]:
    body = path.read_bytes()
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "text/plain"
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {**_HEADERS, "etag": tag}

    async def answer(request: Request) -> Response:
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=kind)

    return answer

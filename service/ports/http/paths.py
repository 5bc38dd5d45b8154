"""The path of a request: without the server's prefix, and without superfluous slashes."""

from __future__ import annotations

import re
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import StartupError

_SLASHES = re.compile("//+")
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/]+)(.*)", re.DOTALL)
_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")


def checked_prefix(prefix: str) -> str:
    """A prefix of the settings without a slash at its end.

    Raises:
        StartupError: the prefix is invalid.
    """
    stripped = prefix.rstrip("/")
    if stripped and not _PREFIX.fullmatch(stripped):
        raise StartupError(f"setting http_prefix: must be a path such as /mt, not {prefix!r}")
    return stripped


def plain_path(scope: Scope, prefix: str) -> str:
    """The path of a request, as routes have it.

    Clients join a server's URL and a path with a slash too many, and proxies add the prefix or
    remove it: all of these are the same path.
    """
    path: str = _SLASHES.sub("/", scope["path"])
    if prefix and f"{path}/".startswith(f"{prefix}/"):
        path = path[len(prefix) :]
    return path.rstrip("/") or "/"


def with_origin_form(app: ASGIApp) -> ASGIApp:
    """An application that gets the path of a request whose target is a whole URL.

    A client writes that to a proxy, and each server has to accept it; the URL's host counts in
    place of the header (RFC 9112, 3.2.2).
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if found := _ABSOLUTE.fullmatch(scope["raw_path"]):
            host, raw_path = found[1], found[2] or b"/"
            others = [pair for pair in scope["headers"] if pair[0] != b"host"]
            scope["headers"] = [(b"host", host), *others]
            scope["raw_path"], scope["path"] = raw_path, unquote(raw_path.decode("ascii"))
        await app(scope, receive, send)

    return answer

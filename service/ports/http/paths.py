"""The path of a request: without the server's prefix, and without superfluous slashes."""

from __future__ import annotations

import re

from starlette.types import Scope

from service.errors import StartupError

_SLASHES = re.compile("//+")
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

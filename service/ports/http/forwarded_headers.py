"""The headers of trusted proxies: a request's client, scheme, host and prefix of paths."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from service.errors import StartupError
from service.ports.http.paths import checked_prefix

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_HOST, _FORWARDED, _X = b"host", b"forwarded", b"x-forwarded-"
_PAIR = re.compile(rb"""(?<![\w-])(for|proto|host)=("[^"\\]*"|[^\s;,"]+)""", re.IGNORECASE)


class ForwardedHeaders:
    """An ASGI application that believes the forwarded headers of trusted proxies, and of no others.

    `x-forwarded-for` (the last address that is no trusted proxy), `x-forwarded-proto` and
    `x-forwarded-host` take the place of the connection's address, the scheme, and `Host`, and
    `x-forwarded-prefix` of the setting `http_prefix`. Without any of them, `forwarded` (RFC 7239)
    is read.

    Args:
        proxies: addresses and networks, such as 10.0.0.0/8; "*" for any.

    Raises:
        StartupError: one is neither an address nor a network.
    """

    def __init__(self, app: ASGIApp, proxies: Sequence[str]) -> None:
        self._app = app
        for proxy in proxies:
            _check(proxy)
        self._proxies = ProxyHeadersMiddleware(
            cast("Any", self._answer), "*" if "*" in proxies else list(proxies)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        peer = scope.get("client")
        scope["dragoman.peer"] = peer
        if peer is not None and peer[0] in self._proxies.trusted_hosts:
            scope["headers"] = headers = _with_forwarded(scope["headers"])
            names = dict(headers)
            if host := _last(names.get(_X + b"host", b"")):
                scope["headers"] = [(_HOST, host), *(pair for pair in headers if pair[0] != _HOST)]
            with contextlib.suppress(StartupError):  # no path: that of the settings
                scope["root_path"] = checked_prefix(
                    _last(names.get(_X + b"prefix", b"")).decode("latin-1")
                )
        await self._proxies(cast("Any", scope), cast("Any", receive), cast("Any", send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with the peer's address unless a header has named a valid one."""
        try:
            ipaddress.ip_address((scope["client"] or ("",))[0])
        except ValueError:
            scope["client"] = scope["dragoman.peer"]
        await self._app(scope, receive, send)


def _with_forwarded(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers, with those of `forwarded` in their usual names."""
    if any(name.startswith(_X) for name, _ in headers):
        return headers
    value = b",".join(value for name, value in headers if name == _FORWARDED)
    found: dict[bytes, list[bytes]] = {}
    for key, part in _PAIR.findall(value):
        found.setdefault(_X + key.lower(), []).append(part.strip(b'"'))
    found = {name: parts if name == _X + b"for" else parts[-1:] for name, parts in found.items()}
    return [*headers, *((name, b",".join(parts)) for name, parts in found.items())]


def _last(value: bytes) -> bytes:
    return value.rpartition(b",")[2].strip()


def _check(proxy: str) -> None:
    try:
        if proxy != "*":
            ipaddress.ip_network(proxy)
    except ValueError as exc:
        raise StartupError(
            f"setting http_trusted_proxies: must be an address, a network such as 10.0.0.0/8, or "
            f"*, not {proxy!r}: {exc}"
        ) from exc

"""The headers of trusted proxies: the client's address, the scheme and the host of a request."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from service.errors import StartupError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_HOST, _FORWARDED_HOST = b"host", b"x-forwarded-host"


class ForwardedHeaders:
    """An ASGI application that believes the forwarded headers of trusted proxies, and of no others.

    `x-forwarded-for` (the last address that is no trusted proxy), `x-forwarded-proto` and
    `x-forwarded-host` take the place of the connection's address, the scheme, and `Host`.

    Args:
        proxies: addresses and networks, such as 10.0.0.0/8; "*" for any.

    Raises:
        StartupError: one is neither.
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
            names = dict(scope["headers"])
            if host := names.get(_FORWARDED_HOST, b"").rpartition(b",")[2].strip():
                others = [pair for pair in scope["headers"] if pair[0] != _HOST]
                scope["headers"] = [(_HOST, host), *others]
        await self._proxies(cast("Any", scope), cast("Any", receive), cast("Any", send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with the peer's address unless a header has named a valid one."""
        try:
            ipaddress.ip_address((scope["client"] or ("",))[0])
        except ValueError:
            scope["client"] = scope["dragoman.peer"]
        await self._app(scope, receive, send)


def _check(proxy: str) -> None:
    try:
        if proxy != "*":
            ipaddress.ip_network(proxy)
    except ValueError as exc:
        raise StartupError(
            f"setting http_trusted_proxies: must be an address, a network such as 10.0.0.0/8, or "
            f"*, not {proxy!r}: {exc}"
        ) from exc

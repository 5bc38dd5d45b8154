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
_FOR, _PROTO = _X + b"for", _X + b"proto"
# A pair, or the comma after the pairs of a proxy.
_PAIR = re.compile(
    rb"""(?<![\w-])(for|proto|host)=("[^"\\]*"|[^\s;,"]+)|"[^"]*"|(,)""", re.IGNORECASE
)


class ForwardedHeaders:
    """An ASGI application that believes the forwarded headers of trusted proxies, and of no others.

    `x-forwarded-for` (the last address that is no trusted proxy), `x-forwarded-proto` and
    `x-forwarded-host` take the place of the connection's address, the scheme, and `Host`, and
    `x-forwarded-prefix` of the setting `http_prefix`. Without any of them, `forwarded` (RFC 7239)
    is read. Of several proxies' schemes and hosts, those of the proxy that names the client count.

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
            headers = _with_forwarded(scope["headers"])
            num_trusted = self._num_trusted(_values(headers, _FOR))
            replaced: dict[bytes, bytes] = {}
            if host := _nth_last(_values(headers, _X + _HOST), num_trusted or 0):
                replaced[_HOST] = host
            protos = _values(headers, _PROTO)
            if proto := _nth_last(protos, len(protos) if num_trusted is None else num_trusted):
                replaced[_PROTO] = proto.lower()
            headers = [*replaced.items(), *(pair for pair in headers if pair[0] not in replaced)]
            scope["headers"] = headers
            prefix = _nth_last(_values(headers, _X + b"prefix"), 0)
            with contextlib.suppress(StartupError):  # no path: that of the settings
                scope["root_path"] = checked_prefix(prefix.decode("latin-1"))
        await self._proxies(cast("Any", scope), cast("Any", receive), cast("Any", send))

    def _num_trusted(self, addresses: Sequence[bytes]) -> int | None:
        """How many proxies have named the addresses after the client's; None without addresses."""
        trusted, count = self._proxies.trusted_hosts, 0
        for address in reversed(addresses[1:]):
            if trusted.get_trusted_client_address(address.decode("latin-1"))[0] not in trusted:
                break
            count += 1
        return count if addresses else None

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
    hops: list[dict[bytes, bytes]] = [{}]
    for key, value, comma in _PAIR.findall(b",".join(_lines(headers, _FORWARDED))):
        if comma:
            hops.append({})
        elif key:
            hops[-1][key.lower()] = value.strip(b'"')
    found = {key: b",".join(hop.get(key, b"") for hop in hops) for key in (b"for", b"proto", _HOST)}
    return [*headers, *((_X + key, value) for key, value in found.items() if value.strip(b","))]


def _lines(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for each, value in headers if each == name]


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """The values that proxies have written, the first one's first."""
    return [each.strip() for line in _lines(headers, name) for each in line.split(b",")]


def _nth_last(values: Sequence[bytes], number: int) -> bytes:
    """The value that some others follow, or the first of fewer."""
    return values[max(0, len(values) - 1 - number)] if values else b""


def _check(proxy: str) -> None:
    try:
        if proxy != "*":
            ipaddress.ip_network(proxy)
    except ValueError as exc:
        raise StartupError(
            f"setting http_trusted_proxies: must be an address, a network such as 10.0.0.0/8, or "
            f"*, not {proxy!r}: {exc}"
        ) from exc

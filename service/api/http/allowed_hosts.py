"""The names that a server is asked by: a check against pages of other sites.

A site can let its own name resolve to 127.0.0.1 (DNS rebinding). Then browsers take what listens
there for a part of that site, which may read all answers; only the header `Host` tells.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import grpc

from service.api.http.answers import HttpError
from service.api.tls import is_loopback
from service.errors import StartupError

_SETTINGS = {
    "host": "--http-allowed-hosts",
    "origin": "--http-allowed-hosts, or, for pages of other sites, --http-allow-origin",
}
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^/?#@:\s\[\]]+)(:[0-9]{1,5})?")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class AllowedHosts:
    """The hosts that requests may name, with any port.

    Args:
        http_host: the address that the server listens on. If it is one of loopback, requests may
            name that and loopback's usual names; otherwise any, unless there are further names.
        further: names of proxies' public addresses.
        origins: of pages that may ask, apart from the server's own; "*" for all.
    """

    def __init__(
        self, http_host: str, further: Sequence[str] = (), origins: Sequence[str] = ()
    ) -> None:
        self._origins = {origin.lower() for origin in origins}
        self._further = {_name(host) for host in further}
        own = {*_LOOPBACK, _bracketed(http_host.lower())}
        is_closed = bool(further) or is_loopback(http_host)
        self._names = own | self._further if is_closed else None

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a request that names another host, or comes from a page of another one.

        Args:
            headers: by names in lower case.

        Raises:
            HttpError: with status 403.
        """
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self._names is not None and host and _name(host) not in self._names:
            raise _refused("host", host)
        origin = headers.get(b"origin")
        if origin is None or self._origins & {"*", origin.decode("latin-1").lower()}:
            return
        place = origin.decode("latin-1").lower().partition("://")[2]
        if place != host and _name(place) not in self._further:
            raise _refused("origin", origin.decode("latin-1"))


def checked_origin(origin: str) -> str:
    """An origin of the settings, as browsers write it.

    Raises:
        StartupError: it is none.
    """
    if origin != "*" and not _ORIGIN.fullmatch(origin.lower()):
        raise StartupError(
            f"setting http_allow_origin: must be * or an origin such as https://app.example.org, "
            f"without a path, not {origin!r}"
        )
    return origin.lower()


def _refused(header: str, value: str) -> HttpError:
    message = (
        f"{header}: {value[:200]!r} is not this server; if it is meant to be asked by this name, "
        f"start it with {_SETTINGS[header]}"
    )
    return HttpError(403, message, grpc.StatusCode.PERMISSION_DENIED)


def _name(host: str) -> str:
    """A host without the port, in lower case."""
    host = host.lower()
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host

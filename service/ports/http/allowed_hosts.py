"""Checks the host names and origins of requests, against pages of other sites.

A site can let its own name resolve to 127.0.0.1 (DNS rebinding). Then browsers take what listens
there for a part of that site, which may read all answers; only the header `Host` tells. A page can
also make a browser send a request without reading the answer, such as by an image's URL. Then the
headers `Origin`, `Sec-Fetch-Site` and `Referer` tell, which no page can forge.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence

import grpc

from service.errors import StartupError
from service.fronts.http.answers import HttpError, bad_request
from service.ports.tls import is_loopback

_SETTINGS = {
    "host": "--http-allowed-hosts",
    "origin": "--http-allowed-hosts, or, for pages of other sites, --http-allow-origin",
}
# A host in lower case and perhaps a port (RFC 3986, 3.2.2 and 3.2.3).
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._~!$&'()*+,;=%-]+)(:[0-9]{0,5})?")
_ORIGIN = re.compile(rf"[a-z][a-z0-9+.-]*://{_AUTHORITY.pattern}")
# Values of Sec-Fetch-Site: a URL that the user typed, and the server's own pages.
_OWN_SITE = (b"none", b"same-origin")


class AllowedHosts:
    """The hosts that requests may name, with any port.

    Any address is allowed: a page of another site that asks by an address has an origin of its own.

    Args:
        listen_host: the address that the server listens on. If it is one of loopback, requests may
            name that, `localhost` and `further`; otherwise any name, unless there is a further one.
        further: names of proxies' public addresses.
        origins: origins of pages that may ask, apart from the server's own; "*" for all.

    Raises:
        StartupError: a further name is invalid.
    """

    def __init__(
        self, listen_host: str, further: Sequence[str] = (), origins: Sequence[str] = ()
    ) -> None:
        self._origins = {origin.lower() for origin in origins}
        self._further = {_checked_name(host) for host in further}
        is_closed = bool(further) or is_loopback(listen_host)
        self._names = {"localhost", listen_host.lower()} | self._further if is_closed else None

    def check(self, headers: Mapping[bytes, bytes], *, is_call: bool = True) -> None:
        """Refuse a request that names another host, or comes from a page of another one.

        Args:
            headers: headers by names in lower case.
            is_call: whether the answer takes work, so that a page of another host may not cause it
                unseen. Links to other paths work from anywhere.

        Raises:
            HttpError: with status 403, or with 400 for an invalid host.
        """
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if host:
            self._check_host(host)
        origin = _origin_of(headers, is_call)
        if origin is None or self._origins & {"*", origin}:
            return
        place = origin.partition("://")[2]
        if place != host and _name(place) not in self._further:
            raise _refused("origin", origin)

    def _check_host(self, host: str) -> None:
        name = _name(host)
        if name is None:
            raise bad_request(400, "host", "must be a name or an address, perhaps with a port")
        if self._names is not None and name not in self._names and not _is_address(name):
            raise _refused("host", host)


def checked_origin(origin: str) -> str:
    """An origin of the settings, as browsers write it.

    Raises:
        StartupError: the origin is invalid.
    """
    if origin != "*" and not _ORIGIN.fullmatch(origin.lower()):
        raise StartupError(
            f"setting http_allow_origin: must be * or an origin such as https://app.example.org, "
            f"without a path, not {origin!r}"
        )
    return origin.lower()


def _checked_name(host: str) -> str:
    name = _name(host)
    if name is None:
        raise StartupError(
            "setting http_allowed_hosts: must be a name such as translate.example.org, without a "
            f"scheme and a path, not {host!r}"
        )
    return name


def _origin_of(headers: Mapping[bytes, bytes], is_call: bool) -> str | None:
    """The origin of the page that sent a request; None if no page did, or one of the server's."""
    if b"origin" in headers:
        return headers[b"origin"].decode("latin-1").lower()
    if not is_call or headers.get(b"sec-fetch-site", b"none") in _OWN_SITE:
        return None
    referer = headers.get(b"referer", b"null").decode("latin-1").lower()
    return "/".join(referer.split("/", 3)[:3])


def _refused(header: str, value: str) -> HttpError:
    message = (
        f"{header}: {value[:200]!r} is not this server; if it is meant to be asked by this name, "
        f"start it with {_SETTINGS[header]}"
    )
    return HttpError(403, message, grpc.StatusCode.PERMISSION_DENIED)


def _name(authority: str) -> str | None:
    """A host without the port, in lower case; None if it is not one."""
    found = _AUTHORITY.fullmatch(authority.lower())
    if found is None or (found[1].startswith("[") and not _is_address(found[1])):
        return None
    return found[1]


def _is_address(name: str) -> bool:
    try:
        if name.startswith("["):
            ipaddress.IPv6Address(name[1:-1])
        else:
            ipaddress.IPv4Address(name)
    except ValueError:
        return False
    return True

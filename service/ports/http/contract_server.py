"""The HTTP server of the contract's calls, the fronts of other APIs and the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from service.calls.call_tracker import CallTracker
from service.fronts.dragoman.servicer import TranslationServicer
from service.fronts.http.transfers import HttpLimits
from service.ports.http.allowed_hosts import AllowedHosts, checked_origin
from service.ports.http.app import HttpApp
from service.ports.http.forwarded_headers import ForwardedHeaders
from service.ports.http.paths import checked_prefix
from service.ports.http.server import MAX_CONNECTIONS, HttpServer

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from service.ports.certificates import ServerTls


class ContractServer(HttpServer):
    """Serves the page, and the calls that a servicer answers.

    Args:
        servicer: answers the calls.
        tracker: of all calls.
        why_not_ready: the reason why the server accepts no requests, or "".
        host: address to bind.
        port: to bind; 0 is any.
        limits: of requests; None for the usual ones.
        max_connections: number at a time.
        allowed_hosts: further names that requests may ask for.
        allow_origin: origins whose pages may ask.
        tls: for HTTPS; None for plain text.
        prefix: of all paths, behind a proxy.
        trusted_proxies: addresses and networks of proxies whose forwarded headers are believed.

    Attributes:
        app: the application.

    Raises:
        StartupError: `allowed_hosts` has what is no host, `allow_origin` what is no origin,
            `trusted_proxies` what is no address, or `prefix` is no path.
    """

    def __init__(
        self,
        servicer: TranslationServicer,
        tracker: CallTracker,
        why_not_ready: Callable[[], str],
        host: str,
        port: int,
        limits: HttpLimits | None = None,
        max_connections: int = MAX_CONNECTIONS,
        allowed_hosts: Sequence[str] = (),
        allow_origin: Sequence[str] = (),
        tls: ServerTls | None = None,
        prefix: str = "",
        trusted_proxies: Sequence[str] = (),
    ) -> None:
        limits = limits or HttpLimits()
        origins = [checked_origin(origin) for origin in allow_origin]
        hosts = AllowedHosts(host, allowed_hosts, origins)
        self.app = HttpApp(
            servicer, tracker, why_not_ready, limits, hosts, origins, checked_prefix(prefix)
        )
        app: ASGIApp = ForwardedHeaders(self.app, trusted_proxies) if trusted_proxies else self.app
        super().__init__(app, host, port, "--http-port", limits, max_connections, tls)

    def start_draining(self) -> None:
        """End each connection after its current answer, or its next one."""
        self.app.is_draining = True

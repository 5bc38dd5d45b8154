"""The HTTP server of the contract's calls, the fronts of other APIs and the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from service.calls.call_tracker import CallTracker
from service.fronts.dragoman.servicer import TranslationServicer
from service.fronts.http.transfers import HttpLimits
from service.ports.http.allowed_hosts import AllowedHosts, checked_origin
from service.ports.http.app import HttpApp
from service.ports.http.server import MAX_CONNECTIONS, HttpServer

if TYPE_CHECKING:
    from service.ports.certificates import ServerTls


class ContractServer(HttpServer):
    """Serves the page, and the calls that a servicer answers.

    Requests may ask for `allowed_hosts`, and pages of the origins `allow_origin` may ask.

    Raises:
        StartupError: a host or an origin is invalid.
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
    ) -> None:
        limits = limits or HttpLimits()
        origins = [checked_origin(origin) for origin in allow_origin]
        hosts = AllowedHosts(host, allowed_hosts, origins)
        self.app = HttpApp(servicer, tracker, why_not_ready, limits, hosts, origins)
        super().__init__(self.app, host, port, "--http-port", limits, max_connections, tls)

    def start_draining(self) -> None:
        """End each connection after its current answer, or its next one."""
        self.app.is_draining = True

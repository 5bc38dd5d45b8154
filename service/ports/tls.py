"""TLS of the ports of a server, as its settings say."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING

from service.errors import StartupError
from service.observability.metrics import ServerMetrics
from service.settings import Settings

if TYPE_CHECKING:
    from service.ports.certificates import ServerTls

HANDSHAKE_SECONDS = 10.0
"""The limit of a handshake; then the connection is closed."""


def server_tls(settings: Settings, metrics: ServerMetrics) -> ServerTls | None:
    """The TLS that the settings ask for; None for plain text.

    Raises:
        StartupError: the settings contradict each other, the certificate can't be used, or a port
            would serve plain text beyond loopback although nothing says so.
    """
    if not settings.tls_cert:
        for name in ("tls_key", "tls_client_ca"):
            if getattr(settings, name):
                raise StartupError(f"--{name.replace('_', '-')} needs --tls-cert")
        _check_exposure(settings)
        return None
    if not settings.tls_key:
        raise StartupError("--tls-cert needs --tls-key, the certificate's private key")
    # Imported here, since most servers have no certificate, and the library takes memory.
    from service.ports.certificates import ServerTls, TlsFiles

    client_ca = Path(settings.tls_client_ca) if settings.tls_client_ca else None
    return ServerTls(TlsFiles(Path(settings.tls_cert), Path(settings.tls_key), client_ca), metrics)


def exposed_hosts(settings: Settings) -> list[str]:
    """The settings whose ports can be reached from other machines."""
    hosts = {"host": True, "http_host": settings.http_port >= 0, "metrics_host": True}
    return [
        f"--{name.replace('_', '-')} {getattr(settings, name)}"
        for name, listens in hosts.items()
        if listens and not is_loopback(getattr(settings, name))
    ]


def _check_exposure(settings: Settings) -> None:
    exposed = exposed_hosts(settings)
    if exposed and not settings.insecure:
        raise StartupError(
            f"{exposed[0]} is reachable from other machines, in plain text. Give --tls-cert and "
            "--tls-key; or --insecure, if a proxy or a closed network protects the traffic; or "
            "listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host, by its name or address."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"

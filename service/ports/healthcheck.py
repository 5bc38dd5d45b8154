"""Checks a server's gRPC health service; for a container's HEALTHCHECK.

    python -m service.ports.healthcheck [--server HOST:PORT] [--service NAME] [--timeout SECONDS]

Exit status 0 if it reports SERVING, else 1 with the reason on standard error. Without --server, a
server whose settings name a certificate is asked for /readyz on its metrics port: that needs no
client's certificate. Imports gRPC and settings only, because it runs every few seconds beside a
server.
"""

from __future__ import annotations

import argparse
import http.client
import os
import ssl
import sys
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.tls import COMMAND_NAMES, Tls, connection_hint, open_channel
from service.settings_sources import environment_name, load_settings

_EVERY_INTERFACE = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "[::]": "[::1]"}


def problem(
    server: str, service: str = "", timeout: float = 3.0, tls: Tls | None = None
) -> str | None:
    """The reason why the server does not serve; None if it does.

    `service` is the full name of a gRPC service; "" for the server as a whole.
    """
    request = health_pb2.HealthCheckRequest(service=service)
    with open_channel(grpc, server, tls, ()) as channel:
        try:
            stub: Any = health_pb2_grpc.HealthStub(channel)  # its types lack the methods
            response = stub.Check(request, timeout=timeout)
        except grpc.RpcError as exc:
            hint = connection_hint(exc.details() or "", COMMAND_NAMES)
            return f"{server}: {exc.code().name}: {hint or exc.details()}"
    if response.status != health_pb2.HealthCheckResponse.SERVING:
        name: str = health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)
        return f"{server}: {name}"
    return None


def readiness_problem(host: str, port: int, timeout: float = 3.0) -> str | None:
    """The reason why /readyz of this container's server with TLS fails; None if it succeeds."""
    # The connection stays on this machine, so the certificate need not name its address.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        reason = response.read(1000).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as exc:
        return f"https://{host}:{port}/readyz: {exc}"
    finally:
        connection.close()
    return None if response.status == 200 else f"{host}:{port}: {reason}"


def own_problem(timeout: float, service: str = "") -> str | None:
    """The reason why this container's server does not serve, by its settings; None if it does.

    Raises:
        StartupError: a setting is invalid.
    """
    settings = load_settings({}, os.environ)
    if not settings.tls_cert:
        return problem(default_server(), service, timeout)
    host = _EVERY_INTERFACE.get(settings.metrics_host, settings.metrics_host)
    return readiness_problem(host.strip("[]"), settings.metrics_port, timeout)


def default_server() -> str:
    """The address of this container's server, from the environment and the configuration file.

    Raises:
        StartupError: a setting is invalid.
    """
    settings = load_settings({}, os.environ)
    return f"{_EVERY_INTERFACE.get(settings.host, settings.host)}:{settings.port}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Check a server's gRPC health service.")
    parser.add_argument(
        "--server",
        metavar="HOST:PORT",
        help=f"default: {environment_name('host')} and {environment_name('port')}, as for serve",
    )
    parser.add_argument("--service", default="", metavar="NAME", help="a gRPC service's full name")
    parser.add_argument("--timeout", type=float, default=3.0, metavar="SECONDS")
    parser.add_argument("--ca", default="", metavar="FILE", help="connect by TLS, trusting these")
    parser.add_argument("--cert", default="", metavar="FILE", help="own certificate")
    parser.add_argument("--key", default="", metavar="FILE", help="its private key")
    parser.add_argument("--server-name", default="", metavar="NAME", help="in its certificate")
    return parser.parse_args()


def main() -> None:
    """The command line."""
    options = _parse()
    tls = Tls(options.ca, options.cert, options.key, options.server_name) if options.ca else None
    if options.server or tls is not None:
        server = options.server or default_server()
        found = problem(server, options.service, options.timeout, tls)
    else:
        found = own_problem(options.timeout, options.service)
    if found is not None:
        sys.exit(found)


if __name__ == "__main__":
    main()

"""The gRPC server: its limits, its channel options and its port."""

from __future__ import annotations

import grpc

from service.errors import StartupError
from service.fronts.grpc.interceptor import Interceptor
from service.ports.grpc.accepting_server import AcceptingServer
from service.settings import Settings

# Beyond our own calls: each client watches the server's health for as long as it is connected.
_MAX_OTHER_CALLS = 4096
# Calls that have arrived and that the event loop has not accepted yet, of each method.
_MAX_PENDING_CALLS = 1_000_000
MAX_PENDING_SECONDS = ("grpc.server_max_unrequested_time_in_server", 86_400)
"""How long such a call may wait. By default, gRPC ends it with CANCELLED after 30 s, though its
client has not cancelled it and its deadline has not passed."""


def create_grpc_server(
    settings: Settings, interceptor: Interceptor, max_connections: int
) -> grpc.aio.Server:
    """A gRPC server without services, which listens nowhere yet."""
    return AcceptingServer(
        interceptor.wrapped,
        # A safety net for calls that the interceptor can't count: those whose request is still
        # arriving, health checks and watches. As many refusals may be held back as calls be in
        # progress.
        max_calls=2 * settings.max_concurrent_requests + _MAX_OTHER_CALLS,
        options=[
            # Otherwise a second server would share the port and get half of the calls.
            ("grpc.so_reuseport", 0),
            # Beyond that, accepting fails, and clients would hang instead of choosing another
            # server.
            ("grpc.max_allowed_incoming_connections", max_connections),
            ("grpc.max_receive_message_length", settings.message_bytes),
            ("grpc.max_send_message_length", -1),
            # Calls wait in gRPC until the event loop accepts them. Beyond these limits gRPC answers
            # CANCELLED. One connection with all its calls must not delay the others for seconds:
            # calls beyond its limit wait in the client, which gRPC's overload protection would
            # refuse instead, with UNAVAILABLE.
            ("grpc.server.max_pending_requests", _MAX_PENDING_CALLS),
            ("grpc.server.max_pending_requests_hard_limit", _MAX_PENDING_CALLS),
            MAX_PENDING_SECONDS,
            ("grpc.max_concurrent_streams", settings.connection_calls),
            ("grpc.http.overload_protection", 0),
            # Detect clients that vanished without closing the connection, and let clients keep idle
            # connections alive through proxies that drop them.
            ("grpc.keepalive_time_ms", 60_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.http2.min_ping_interval_without_data_ms", int(settings.min_ping_seconds * 1000)),
            ("grpc.keepalive_permit_without_calls", 1),
            # By default a connection lasts for ever: new replicas would get no calls from clients
            # that balance by themselves.
            ("grpc.max_connection_age_ms", int(settings.max_connection_seconds * 1000)),
        ],
    )


def bind(
    server: grpc.aio.Server,
    host: str,
    port: int,
    credentials: grpc.ServerCredentials | None = None,
) -> int:
    """Bind a port; 0 is any. Returns the port.

    Raises:
        StartupError: the address can't be used.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if credentials is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, credentials)
    except RuntimeError as exc:
        raise StartupError(
            f"cannot listen on {address}: the port is in use or the address is not this "
            f"machine's; choose another with --port or --host"
        ) from exc
    if not bound:
        raise StartupError(f"cannot listen on {address}")
    return bound

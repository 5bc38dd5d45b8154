"""The gRPC server: its limits, its channel options and its port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.common import descriptors
from service.fronts.grpc.interceptor import Interceptor
from service.ports.grpc.accepting_server import AcceptingServer
from service.ports.grpc.binding import bind
from service.ports.grpc.front_processes.group import FrontProcesses, FrontSettings
from service.ports.grpc.reflection import Reflection
from service.settings import Settings

if TYPE_CHECKING:
    from service.ports.certificates import ServerTls
    from service.ports.metrics_port import Probes

# Beyond our own calls: each client watches the server's health for as long as it is connected.
_MAX_OTHER_CALLS = 4096
# Calls that have arrived and that the event loop has not accepted yet, of each method.
_MAX_PENDING_CALLS = 1_000_000
MAX_PENDING_SECONDS = ("grpc.server_max_unrequested_time_in_server", 86_400)
"""Longest wait of such a call, in seconds. gRPC would end it with CANCELLED after 30 s, though its
client has not cancelled it and its deadline has not passed."""

_SILENT = "a front process does not answer"

GrpcServer = AcceptingServer | FrontProcesses


def create_grpc_server(
    settings: Settings,
    interceptor: Interceptor,
    reflection: Reflection,
    num_other_connections: int,
    tls: ServerTls | None,
    probes: Probes,
) -> GrpcServer:
    """A gRPC server with reflection only, which listens nowhere yet.

    Args:
        num_other_connections: most connections of this process's other ports.
        tls: the server's certificate, for front processes; None for plain text.
        probes: told if a front process does not answer.
    """
    connections = descriptors.max_connections()
    if settings.front_processes:
        fronts = FrontSettings(
            settings.front_processes,
            _channel_options(settings, connections, shares_port=True),
            _max_calls(settings),
            reflection.services,
            reflection.max_streams,
            interceptor.write_seconds,
            settings.log_level,
            settings.log_format,
        )

        def show_silent(num_silent: int) -> None:
            probes.set_not_ready(_SILENT if num_silent else "", "front processes")

        return FrontProcesses(fronts, interceptor.wrapped, tls, show_silent)
    options = _channel_options(settings, connections - num_other_connections, shares_port=False)
    server = AcceptingServer(interceptor.wrapped, options, _max_calls(settings))
    reflection.add_to(server)
    return server


def bind_grpc(server: GrpcServer, settings: Settings, tls: ServerTls | None) -> int:
    """Bind the port of the settings. Returns the port.

    Raises:
        StartupError: the address can't be used.
    """
    if isinstance(server, FrontProcesses):
        return server.bind(settings.host, settings.port)
    return bind(server, settings.host, settings.port, tls.grpc_credentials() if tls else None)


def _max_calls(settings: Settings) -> int:
    """A safety net for calls that the interceptor can't count.

    These are calls whose request is still arriving, health checks and watches. As many refusals may
    be held back as calls be in progress.
    """
    return 2 * settings.max_concurrent_requests + _MAX_OTHER_CALLS


def _channel_options(
    settings: Settings, max_connections: int, *, shares_port: bool
) -> list[tuple[str, int]]:
    """Limits of connections and messages, as options of gRPC's core.

    Args:
        max_connections: limit of open connections.
        shares_port: whether other processes of this server listen on the same port.
    """
    return [
        # Otherwise a second server would share the port and get half of the calls.
        ("grpc.so_reuseport", int(shares_port)),
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
    ]

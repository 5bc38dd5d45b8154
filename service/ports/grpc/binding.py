"""Addresses of the gRPC port."""

from __future__ import annotations

import socket

import grpc

from service.errors import StartupError


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
    address = _address(host, port)
    try:
        if credentials is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, credentials)
    except RuntimeError as exc:
        raise _not_listening(address) from exc
    if not bound:
        raise StartupError(f"cannot listen on {address}")
    return bound


def reserve(host: str, port: int) -> tuple[socket.socket, int]:
    """Reserve a port for processes that share it; 0 is any.

    Returns:
        A socket that reserves the port until it is closed, and the port. It accepts nothing.

    Raises:
        StartupError: the address can't be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if port:
            # Another server's port must not be shared: it would get a part of the calls.
            with socket.socket(family, kind, protocol) as alone:
                alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                alone.bind(address)
        reserved = socket.socket(family, kind, protocol)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(address)
    except OSError as exc:
        raise _not_listening(_address(host, port)) from exc
    return reserved, reserved.getsockname()[1]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _not_listening(address: str) -> StartupError:
    return StartupError(
        f"cannot listen on {address}: the port is in use or the address is not this machine's; "
        "choose another with --port or --host"
    )

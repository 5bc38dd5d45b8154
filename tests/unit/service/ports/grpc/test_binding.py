"""The port that front processes share is theirs alone."""

from __future__ import annotations

import socket

import pytest

from service.errors import StartupError
from service.ports.grpc.accepting_server import AcceptingServer
from service.ports.grpc.binding import bind, reserve


def test_a_port_is_reserved_once() -> None:
    reserved, port = reserve("127.0.0.1", 0)
    with reserved, pytest.raises(StartupError, match=f"cannot listen on 127.0.0.1:{port}"):
        reserve("127.0.0.1", port)
    again, _ = reserve("127.0.0.1", port)
    again.close()


async def test_a_port_is_not_shared_with_another_server() -> None:
    server = AcceptingServer(options=[("grpc.so_reuseport", 1)])
    port = bind(server, "127.0.0.1", 0)
    await server.start()
    with pytest.raises(StartupError, match=f"cannot listen on 127.0.0.1:{port}"):
        reserve("127.0.0.1", port)
    await server.stop(None)


async def test_servers_that_share_a_port_can_bind_it_when_it_is_reserved() -> None:
    reserved, port = reserve("127.0.0.1", 0)
    with reserved:
        for _ in range(2):
            server = AcceptingServer(options=[("grpc.so_reuseport", 1)])
            assert bind(server, "127.0.0.1", port) == port
        with pytest.raises(StartupError):
            bind(AcceptingServer(options=[("grpc.so_reuseport", 0)]), "127.0.0.1", port)


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(StartupError, match="choose another with --port or --host"):
        reserve(host, 50051)


def test_addresses_of_both_families() -> None:
    for host in ("127.0.0.1", "0.0.0.0", "localhost"):
        reserved, port = reserve(host, 0)
        assert reserved.family in (socket.AF_INET, socket.AF_INET6)
        assert port > 0
        reserved.close()

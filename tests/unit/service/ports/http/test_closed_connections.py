"""Closed connections are freed at once, without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from service.fronts.http.transfers import HttpLimits
from service.ports.http.connection import Connection
from service.ports.http.server import HttpServer

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

HEAD = b"POST /x HTTP/1.1\r\nhost: localhost\r\n"


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    """Objects that hold each other stay."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


async def until_connections(count: int) -> None:
    """Wait until so many connections exist, closed ones among them."""
    async with asyncio.timeout(60):
        while sum(isinstance(each, Connection) for each in gc.get_objects()) != count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"no request\r\n\r\n",
        HEAD + b"content-length: 2\r\n\r\nab",
        HEAD + b"content-length: 2\r\n\r\na",
        (HEAD + b"content-length: 2\r\n\r\nab") * 100,
        HEAD + b"a:b\r\n" * 50_000 + b"\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 50_000,
        HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"a:b\r\n" * 50_000,
    ],
    ids=["nothing", "garbage", "one", "cut", "pipelined", "headers", "chunks", "trailers"],
)
async def test_a_closed_connection_is_freed(sent: bytes) -> None:
    server = HttpServer(app, "127.0.0.1", 0, "--http-port", HttpLimits(), 10)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await until_connections(1)
    writer.write(sent)
    if sent:
        writer.write_eof()
        await reader.read()
    writer.close()
    await until_connections(0)
    await server.close()

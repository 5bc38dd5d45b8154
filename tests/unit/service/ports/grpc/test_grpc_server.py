"""Calls that the event loop accepts late."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest

from service.ports.grpc.accepting_server import AcceptingServer
from service.ports.grpc.server import MAX_PENDING_SECONDS


@pytest.mark.parametrize("max_seconds", [1, MAX_PENDING_SECONDS[1]])
async def test_a_call_that_waits_to_be_accepted_is_not_cancelled(max_seconds: int) -> None:
    """By a limit of a second, it is: the option does what it should."""

    async def answer(data: bytes, context: object) -> bytes:
        return data

    server: Any = AcceptingServer(options=[(MAX_PENDING_SECONDS[0], max_seconds)])
    handlers: dict[str, Any] = {"Answer": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_registered_method_handlers("Service", handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    codes: set[grpc.StatusCode] = set()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        await asyncio.to_thread(grpc.channel_ready_future(channel).result)
        call: Any = channel.unary_unary("/Service/Answer")
        for seconds in (2.5,) if max_seconds > 1 else (2.5, 5.0, 10.0):
            calls = [call.future(b"", timeout=60) for _ in range(4)]
            time.sleep(seconds)  # the event loop accepts nothing meanwhile
            codes |= {await asyncio.to_thread(each.code) for each in calls}
            if grpc.StatusCode.CANCELLED in codes:
                break
    await server.stop(None)
    assert (grpc.StatusCode.CANCELLED in codes) == (max_seconds == 1)
    assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED}

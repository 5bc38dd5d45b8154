"""gRPC in front processes: what holds without them holds with them, and one of them may die."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.client import AsyncClient, Tls
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from model.bundle.tokenizer import Tokenizer
from service.ports.grpc.front_processes.group import FrontProcesses
from tests.certificates import CertificateFolder
from tests.client_errors import status_error_of
from tests.integration import servers
from tests.integration.servers import (
    Running,
    ServerProcess,
    fake_runner,
    running_fake,
    server_process,
)

# Tests of a server without front processes, which here run with them.
from tests.integration.test_going_away import (  # noqa: F401
    test_a_cancelled_call_frees_its_rows_before_the_next_step,
    test_a_stream_that_is_closed_frees_its_row,
    test_an_expired_call_frees_its_row_and_others_go_on,
    until_inside,
)
from tests.integration.test_keys import (  # noqa: F401
    file,
    test_concurrent_calls_take_exactly_the_quota,
)
from tests.integration.test_process import (  # noqa: F401
    test_a_server_that_is_killed_leaves_no_process_behind,
    test_sigterm_loses_nothing_and_ends_with_0,
)
from tests.integration.test_tls import handshake, secure, translation, trusting
from tests.robustness.faults.gauges import front_process, is_running

SERVICE = "dragoman.v1.TranslationService"
TEXT = "A dog."


@pytest.fixture(autouse=True)
def two_fronts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers have two front processes."""
    monkeypatch.setattr(servers, "num_fronts", 2)


def fronts_of(server: Running) -> list[int]:
    """The ids of a server's front processes."""
    assert isinstance(server.server._grpc, FrontProcesses)
    return server.server._grpc.pids


class Clients:
    """Clients with connections of their own, which the kernel gives to the front processes.

    Attributes:
        stubs: one for each connection.
    """

    def __init__(self, server: Running, count: int) -> None:
        # The number keeps gRPC from sharing one connection among the channels.
        self._channels = [
            grpc.aio.insecure_channel(server.address, options=[("dragoman.connection", number)])
            for number in range(count)
        ]
        self.stubs: list[Any] = [TranslationServiceStub(channel) for channel in self._channels]

    async def __aenter__(self) -> Clients:
        """Connect."""
        await asyncio.gather(*(channel.channel_ready() for channel in self._channels))
        return self

    async def __aexit__(self, *error: object) -> None:
        """Disconnect."""
        await asyncio.gather(*(channel.close() for channel in self._channels))


def request(text: str = TEXT) -> pb.TranslateRequest:
    return pb.TranslateRequest(contents=[text])


async def test_errors_and_details_reach_the_client(tokenizer: Tokenizer) -> None:
    async with (
        running_fake(fake_runner(tokenizer), tokenizer, max_message_bytes=2000) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):

        async def failure(method: str, data: bytes) -> grpc.aio.AioRpcError:
            call: Any = channel.unary_unary(method)
            return await status_error_of(call(data, metadata=[("x-request-id", "mine")]))

        translate = f"/{SERVICE}/Translate"
        invalid = await failure(translate, pb.TranslateRequest().SerializeToString())
        assert invalid.code() is grpc.StatusCode.INVALID_ARGUMENT
        trailing = dict(invalid.trailing_metadata() or ())
        assert trailing["x-request-id"] == "mine"
        status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
        kinds = [detail.TypeName() for detail in status.details]
        assert error_details_pb2.BadRequest.DESCRIPTOR.full_name in kinds
        undecodable = await failure(translate, b"\xff")
        assert undecodable.code() is grpc.StatusCode.INVALID_ARGUMENT
        too_large = await failure(translate, bytes(3000))
        assert too_large.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        unknown = await failure(f"/{SERVICE}/Nothing", b"")
        assert unknown.code() is grpc.StatusCode.UNIMPLEMENTED
        bad_check = await failure("/grpc.health.v1.Health/Check", b"\xff")
        assert bad_check.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_limit_of_calls_is_exact_over_all_processes(tokenizer: Tokenizer) -> None:
    runner = fake_runner(tokenizer)
    settings = {"max_concurrent_requests": 16, "max_waiting": 100}
    async with (
        running_fake(runner, tokenizer, **settings) as server,
        Clients(server, 20) as clients,
    ):
        runner.hold()
        # Of different clients, since each client has only a share of the limit.
        calls = [
            asyncio.ensure_future(stub.Translate(request(), metadata=[("x-client-id", f"c{n}")]))
            for n, stub in enumerate(clients.stubs)
        ]
        while sum(call.done() for call in calls) < 4:
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED, timeout=0.05)
        await until_inside(server, 16)
        runner.release()
        found = await asyncio.gather(*calls, return_exceptions=True)
    codes = Counter(getattr(one, "code", lambda: grpc.StatusCode.OK)() for one in found)
    assert codes == {grpc.StatusCode.OK: 16, grpc.StatusCode.RESOURCE_EXHAUSTED: 4}


async def test_a_process_that_is_killed_takes_only_its_own_calls_along(
    tokenizer: Tokenizer,
) -> None:
    runner = fake_runner(tokenizer, max_rows=64)
    async with running_fake(runner, tokenizer) as server, Clients(server, 12) as clients:
        runner.hold()
        calls = [asyncio.ensure_future(stub.Translate(request())) for stub in clients.stubs]
        await until_inside(server, len(calls))
        victim, other = fronts_of(server)
        os.kill(victim, signal.SIGKILL)
        cancelled = {"method": "Translate", "code": "CANCELLED"}
        # The kernel may have given all connections to one process, or none.
        while fronts_of(server)[:1] == [victim] or len(fronts_of(server)) < 2:
            await asyncio.sleep(0.01)
        runner.release()
        found = await asyncio.gather(*calls, return_exceptions=True)
        lost = [one for one in found if isinstance(one, grpc.aio.AioRpcError)]
        assert {error.code() for error in lost} <= {grpc.StatusCode.UNAVAILABLE}
        assert server.metric("dragoman_requests_total", **cancelled) == len(lost)
        assert server.metric("dragoman_requests_in_flight", method="Translate") == 0
        assert other in fronts_of(server)
        async with Clients(server, 12) as others:
            await asyncio.gather(*(stub.Translate(request()) for stub in others.stubs))


async def test_health_is_watched_until_the_drain(tokenizer: Tokenizer) -> None:
    serving = health_pb2.HealthCheckResponse.SERVING
    async with running_fake(fake_runner(tokenizer), tokenizer) as server:
        channel = grpc.aio.insecure_channel(server.address)
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == serving
        assert server.server._health.watches.num_taken == 1
        gone = stub.Watch(health_pb2.HealthCheckRequest())
        await gone.read()
        gone.cancel()
        while server.server._health.watches.num_taken > 1:
            await asyncio.sleep(0)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == serving
        await server.server.drain()
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await watch.read() is grpc.aio.EOF
        await channel.close()


async def test_a_new_certificate_reaches_all_processes(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    folder = CertificateFolder.made(tmp_path / "certificates")
    async with secure(folder, tokenizer) as server:
        port = server.server.port
        serial = folder.issue()
        in_a_row = 0
        while in_a_row < 8:  # connections, which the kernel gives to both processes
            is_new = (await handshake(port, trusting(folder)))[1] == serial
            in_a_row = in_a_row + 1 if is_new else 0
            await asyncio.sleep(0.05)
        assert await translation(server, Tls(str(folder.ca))) == TEXT


# --- stopped processes ----------------------------------------------------------------------------


async def ready_statuses(server: ServerProcess, seen: list[int]) -> None:
    """Add each new status that /readyz has. Never returns."""
    while True:
        status = await server.probe("/readyz")
        if seen[-1:] != [status]:
            seen.append(status)
        await asyncio.sleep(0.02)


async def test_a_process_that_is_stopped_is_replaced_and_not_ready_until_then(
    bundle_path: Path,
) -> None:
    async with server_process("--model", bundle_path) as server:
        statuses: list[int] = []
        probing = asyncio.create_task(ready_statuses(server, statuses))
        stopped = front_process(server.process.pid)
        os.kill(stopped, signal.SIGSTOP)
        await server.read_log_until("a front process ended; its calls are cancelled")
        while statuses[-1:] != [200] or 503 not in statuses:
            await asyncio.sleep(0.02)
        probing.cancel()
        assert not is_running(stopped)
        clients = [AsyncClient(server.address, timeout=100) for _ in range(12)]
        async with contextlib.AsyncExitStack() as stack:
            for client in clients:  # whichever process gets the connection
                await (await stack.enter_async_context(client)).translate([TEXT])


async def test_a_process_that_is_stopped_does_not_hold_the_end(bundle_path: Path) -> None:
    async with server_process("--model", bundle_path, "--drain-seconds", "3600") as server:
        os.kill(front_process(server.process.pid), signal.SIGSTOP)
        server.terminate()
        assert await server.end() == 0

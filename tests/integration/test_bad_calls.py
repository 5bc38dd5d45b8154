"""Methods, messages and load that a server refuses, and engines that fail."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, TrailersReceived

from dragoman.client import AsyncClient, FinishReason
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1 import translation_pb2_grpc
from model.bundle.tokenizer import Tokenizer
from service import process
from service.domain.plan import StepOutput, StepPlan
from service.errors import InternalError
from service.models.registry import Registry
from service.observability.metrics import ServerMetrics
from service.server import Server
from tests.client_errors import refused, status_error_of
from tests.fake_runner import FakeRunner
from tests.integration.neighbours import held_calls, running_busy
from tests.integration.servers import (
    Running,
    any_ports,
    fake_runner,
    running_fake,
    served,
)


@pytest.fixture
async def server(bundle_path: Path) -> AsyncIterator[Running]:
    async with running_busy(bundle_path) as made:
        yield made


async def test_load_is_refused_with_a_hint_and_recovers(tokenizer: Tokenizer) -> None:
    runner = fake_runner(tokenizer, max_rows=2)
    async with running_fake(runner, tokenizer, max_waiting=2) as made:
        held = await held_calls(made, runner, 4)
        await asyncio.to_thread(runner.wait_until_blocked)
        async with AsyncClient(made.address, patient=False) as hasty:
            error = await refused(hasty.translate(["A dog."]), "RESOURCE_EXHAUSTED")
        assert error.retry_after_seconds is not None
        assert error.retry_after_seconds > 0
        runner.release()
        for batch in await asyncio.gather(*held):
            assert batch.translations[0].text == "A dog."
        assert (await made.client.translate(["Two men."])).translations[0].text == "Two men."


async def test_a_failing_model_fails_its_texts_only_and_is_not_shown(tokenizer: Tokenizer) -> None:
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer) as made:
        runner.fail_next(RuntimeError("secret details"))
        batch = await made.client.translate(["A dog."], request_id="that-one")
        error = batch.translations[0].error
        assert error is not None
        assert error.code is grpc.StatusCode.INTERNAL
        assert "that-one" in error.message
        assert "secret" not in error.message
        assert batch.translations[0].finish_reason is FinishReason.ERROR
        assert (await made.client.translate(["Two men."])).translations[0].text == "Two men."


class BrokenRunner(FakeRunner):
    """A runner that breaks its contract, after which no engine can continue."""

    def execute(self, plan: StepPlan) -> StepOutput:
        """No output at all."""
        output: Any = None
        return cast(StepOutput, output)


async def test_a_server_whose_engine_broke_ends_so_that_it_is_started_afresh(
    tokenizer: Tokenizer,
) -> None:
    runner = BrokenRunner(fake_runner(tokenizer).limits)
    metrics, settings = ServerMetrics(), any_ports()
    registry = Registry([served(runner, tokenizer, settings, metrics)])
    server = Server(settings, registry, metrics)
    serving = asyncio.ensure_future(process.serve(server))
    while not metrics.registry.get_sample_value("dragoman_serving"):
        await asyncio.sleep(0)
    request = pb.TranslateRequest(contents=["A dog."])
    # A client that does not retry, and calls again and again: the server must not wait for it.
    codes: list[grpc.StatusCode] = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        while not serving.done():
            error = await status_error_of(stub.Translate(request))
            codes.append(error.code())
    # gRPC resets a call that arrives while it stops. This client has one call at a time.
    assert set(codes) <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
    assert codes.count(grpc.StatusCode.CANCELLED) <= 1
    with pytest.raises(InternalError, match="model fake stopped working"):
        await serving
    labels = {"method": "Translate", "code": "UNAVAILABLE"}
    num_refused = metrics.registry.get_sample_value("dragoman_requests_total", labels)
    assert num_refused is not None
    assert num_refused < 20, "it goes on to accept calls that it can only refuse"
    assert metrics.registry.get_sample_value("dragoman_serving") == 0


@pytest.mark.parametrize(
    "path", [b"/\xe9", b"\xff" * 100, b"/\xe9/Translate", b"", b"/no.Such/Method"]
)
async def test_whatever_bytes_name_no_method_are_unimplemented(
    server: Running, path: bytes
) -> None:
    assert await grpc_status_of_path(server.address, path) == b"12"


async def test_a_method_is_served_whatever_others_are_called(server: Running) -> None:
    for path in (b"/\xe9", b"/grpc.health.v1.Health/Check", b"/\xe9", b"/\xe9"):
        status = await grpc_status_of_path(server.address, path)
        assert status == (b"0" if path.endswith(b"Check") else b"12")


async def grpc_status_of_path(address: str, path: bytes) -> bytes:
    """The status of a call whose message is empty, for a path of any bytes."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    config = H2Configuration(
        header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
    )
    connection = H2Connection(config)
    connection.initiate_connection()
    headers = {b":method": b"POST", b":scheme": b"http", b":path": path, b":authority": b"x"}
    headers |= {b"content-type": b"application/grpc", b"te": b"trailers"}
    connection.send_headers(1, list(headers.items()))
    connection.send_data(1, bytes(5), end_stream=True)
    found: dict[bytes, bytes] = {}
    try:
        while True:
            writer.write(connection.data_to_send())
            received = await reader.read(65536)
            assert received, "the server closed the connection"
            for event in connection.receive_data(received):
                if isinstance(event, ResponseReceived | TrailersReceived):
                    found.update(cast(Any, event.headers))
                if isinstance(event, DataReceived):
                    connection.acknowledge_received_data(event.flow_controlled_length, 1)
                if isinstance(event, StreamEnded):
                    return found[b"grpc-status"]
    finally:
        writer.close()

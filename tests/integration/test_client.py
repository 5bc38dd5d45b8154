"""The client retries calls and spreads them over servers by itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dragoman.client import AsyncClient, Client, TranslationError
from dragoman.v1 import translation_pb2 as pb
from model.bundle.tokenizer import Tokenizer
from service.fronts.dragoman.servicer import SERVICE
from tests.client_errors import error_of, refused
from tests.integration.neighbours import held_calls
from tests.integration.servers import (
    NO_HURRY,
    ServerProcess,
    fake_runner,
    running_fake,
    running_held,
    server_process,
    streamed,
)

BOTH = "ipv4:127.0.0.1:{},127.0.0.1:{}"  # what a DNS name with two addresses comes to


async def test_calls_go_round_all_addresses(tokenizer: Tokenizer) -> None:
    async with (
        running_fake(fake_runner(tokenizer), tokenizer) as first,
        running_fake(fake_runner(tokenizer), tokenizer) as second,
        AsyncClient(BOTH.format(first.server.port, second.server.port)) as client,
    ):
        servers = (first, second)

        def calls() -> list[float]:
            labels = {"method": "Translate", "code": "OK"}
            return [server.metric("dragoman_requests_total", **labels) for server in servers]

        while 0 in calls():  # until it is connected to both
            await client.translate(["A dog."])
        before = calls()
        for _ in range(10):
            await client.translate(["A dog."])
        assert [after - count for after, count in zip(calls(), before, strict=True)] == [5, 5]


@contextlib.asynccontextmanager
async def two_replicas(bundle: Path) -> AsyncIterator[tuple[AsyncClient, ServerProcess]]:
    """A client of two servers, and the one of them that will go."""
    async with (
        server_process("--model", bundle, *NO_HURRY) as stays,
        server_process("--model", bundle, *NO_HURRY) as goes,
    ):
        ports = [server.address.rpartition(":")[2] for server in (stays, goes)]
        async with AsyncClient(BOTH.format(*ports), timeout=60) as client:
            yield client, goes


async def test_a_replica_that_is_killed_under_load_costs_no_unary_call(bundle_path: Path) -> None:
    texts = ["A dog is running across the green field."]
    async with two_replicas(bundle_path) as (client, dies):
        expected = (await client.translate(texts)).translations
        done = asyncio.Semaphore(0)

        async def work() -> None:
            for _ in range(30):
                assert (await client.translate(texts)).translations == expected
                done.release()

        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(work())
            for _ in range(60):
                await done.acquire()
            dies.process.kill()


async def test_a_rolling_restart_loses_no_call_and_cuts_no_stream(bundle_path: Path) -> None:
    texts = ["A dog is running across the green field. Two men are playing the guitar."]
    async with two_replicas(bundle_path) as (client, goes):
        (expected,) = (await client.translate(texts)).translations
        done = asyncio.Semaphore(0)

        async def unary() -> None:
            for _ in range(30):
                assert (await client.translate(texts)).translations == [expected]
                done.release()

        async def streaming() -> None:
            for _ in range(30):
                assert (await streamed(client, texts[0]))[0] == expected.text

        async with asyncio.TaskGroup() as group:
            for _ in range(6):
                group.create_task(unary())
                group.create_task(streaming())
            for _ in range(60):
                await done.acquire()
            goes.terminate()
        assert await goes.end() == 0


async def test_a_server_that_is_not_there_is_unavailable_within_the_deadline() -> None:
    async with AsyncClient("127.0.0.1:1", timeout=60) as client:
        error = await refused(client.translate(["A dog."]), "UNAVAILABLE")
        assert error.request_id == ""
        with pytest.raises(TranslationError):
            await anext(client.stream("A dog."))


async def test_a_call_that_grpc_reset_while_a_server_stopped_is_sent_again() -> None:
    ended = [grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE]

    async def translate(request: pb.TranslateRequest, context: Any) -> pb.TranslateResponse:
        if ended:
            await context.abort(ended.pop(), "stopping")
        return pb.TranslateResponse(translations=[pb.Translation(translated_text="Ein Hund.")])

    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(
        translate, pb.TranslateRequest.FromString, pb.TranslateResponse.SerializeToString
    )
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(SERVICE, {"Translate": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}", timeout=60) as client:
            [translation] = (await client.translate(["A dog."])).translations
    finally:
        await server.stop(None)
    assert translation.text == "Ein Hund."
    assert ended == []


async def test_a_deadline_of_the_client_ends_its_call(tokenizer: Tokenizer) -> None:
    async with running_held(tokenizer) as (server, _):
        await refused(server.client.translate(["A dog."], timeout=0.1), "DEADLINE_EXCEEDED")
        await refused(anext(server.client.stream("A dog.", timeout=0.1)), "DEADLINE_EXCEEDED")


async def test_what_an_overloaded_server_refused_is_tried_again(tokenizer: Tokenizer) -> None:
    """Both clients retry calls and streams, unless retries are switched off."""
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer, max_waiting=2) as server:

        def refused(method: str) -> float:
            return server.metric(
                "dragoman_requests_total", method=method, code="RESOURCE_EXHAUSTED"
            )

        def ask_in_a_thread() -> list[str]:
            with Client(server.address) as client:
                pieces = list(client.stream("Two men."))
                streamed = "".join(piece for piece in pieces if isinstance(piece, str))
                return [client.translate(["Two men."]).translations[0].text, streamed]

        held = await held_calls(server, runner, 6)
        async with AsyncClient(server.address, patient=False) as hasty:
            error = await error_of(hasty.translate(["Two men."]), "RESOURCE_EXHAUSTED")
        assert error.retry_after_seconds is not None
        asked = asyncio.ensure_future(server.client.translate(["Two men."]))
        streaming = asyncio.ensure_future(streamed(server.client, "Two men."))
        threaded = asyncio.ensure_future(asyncio.to_thread(ask_in_a_thread))
        while refused("Translate") < 2 or refused("StreamTranslate") < 2:
            await asyncio.sleep(0)
        runner.release()
        assert (await asked).translations[0].text == "Two men."
        assert (await streaming)[0] == "Two men."
        assert await threaded == ["Two men.", "Two men."]
        await asyncio.gather(*held)


async def test_a_timeout_covers_all_attempts(tokenizer: Tokenizer) -> None:
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer, max_waiting=2) as server:
        held = await held_calls(server, runner, 6)
        error = await error_of(server.client.translate(["Two men."], timeout=0.3))
        assert error.code in (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )
        runner.release()
        await asyncio.gather(*held)

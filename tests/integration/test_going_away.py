"""Clients that disconnect: their rows are free before the next step, without effect on others."""

import asyncio
import io
import json
import logging

import grpc

from dragoman.v1 import translation_pb2, translation_pb2_grpc
from model.bundle.tokenizer import Tokenizer
from service.engine.engine import Engine
from service.observability import logs
from tests.client_errors import refused
from tests.integration.servers import Running, fake_runner, running_fake, running_held


async def until_inside(server: Running, num_sentences: int) -> None:
    """Wait until the engine has this number of sequences, from calls that have arrived."""
    engine = server.registry.get("fake").engine
    assert isinstance(engine, Engine)
    while engine._admission.num_taken < num_sentences:
        await asyncio.sleep(0)


async def test_a_cancelled_call_frees_its_rows_before_the_next_step(
    tokenizer: Tokenizer,
) -> None:
    async with running_held(tokenizer) as (made, runner):
        gone = asyncio.ensure_future(made.client.translate(["The children.", "The lake."]))
        stays = asyncio.ensure_future(made.client.translate(["A dog is running."]))
        await until_inside(made, 3)
        await asyncio.to_thread(runner.wait_until_blocked)
        # Two steps: whoever was not in the first joins in the second.
        runner.allow()
        await asyncio.to_thread(runner.wait_until_blocked)
        runner.allow()
        await asyncio.to_thread(runner.wait_until_blocked)
        before = len(runner.plans)
        gone.cancel()
        await made.until_cancelled()
        runner.release()
        assert (await stays).translations[0].text == "A dog is running."
        # A plan is noted when it is let through: the first is the step that was in flight when the
        # call was cancelled, and the last that has its rows.
        in_flight, *later = [plan.num_rows for plan in runner.plans[before:]]
        assert in_flight == 3
        assert set(later) == {1}
        finished = made.metric(
            "dragoman_finished_sentences_total", model="fake", reason="cancelled"
        )
        assert finished == 2


async def test_an_expired_call_frees_its_row_and_others_go_on(tokenizer: Tokenizer) -> None:
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer) as made:
        await made.client.list_models()  # so that the call's time is not spent on the connection
        runner.hold()
        late = asyncio.ensure_future(made.client.translate(["The children."], timeout=1.0))
        stays = asyncio.ensure_future(made.client.translate(["A dog is running."]))
        inside = asyncio.ensure_future(until_inside(made, 2))
        # On a busy machine, the first may have expired before the second is inside.
        await asyncio.wait({late, inside}, return_when=asyncio.FIRST_COMPLETED)
        inside.cancel()
        await until_inside(made, 1)
        await refused(late, "DEADLINE_EXCEEDED")
        # The client's clock and the server's run out at nearly the same time: whose does first
        # decides as what the server counts the call.
        while not any(
            made.metric("dragoman_requests_total", method="Translate", code=code)
            for code in ("DEADLINE_EXCEEDED", "CANCELLED")
        ):
            await asyncio.sleep(0)
        before = len(runner.plans)
        runner.release()
        assert (await stays).translations[0].text == "A dog is running."
        later = [plan.num_rows for plan in runner.plans[before + 1 :]]  # all but the one in flight
        assert set(later) == {1}


async def test_a_stream_that_is_closed_frees_its_row(tokenizer: Tokenizer) -> None:
    runner, text = fake_runner(tokenizer), "A dog is running across the green field."
    async with running_fake(runner, tokenizer) as made:
        runner.hold()
        stream = made.client.stream(text)
        first = asyncio.ensure_future(anext(stream))
        runner.allow(len(tokenizer.encode(text)) // 2)  # enough for a piece, not for the whole
        await first
        await stream.aclose()
        # Before any further step: the rest of them might be quicker than the events.
        await made.until_cancelled("StreamTranslate")
        runner.release()
        assert (await made.client.translate(["Two men."])).translations[0].text == "Two men."
        assert made.metric("dragoman_rows_used", model="fake") == 0


async def test_a_client_that_does_not_read_and_goes_is_one_line_in_the_log(
    tokenizer: Tokenizer, root: logging.Logger
) -> None:
    log, runner = io.StringIO(), fake_runner(tokenizer)
    text = " ".join(["A dog is running across the green field."] * 2400)
    # Without these, gRPC reads ahead.
    options = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024)]
    async with running_fake(runner, tokenizer) as made:
        logs.configure("info", "json", log)
        async with grpc.aio.insecure_channel(made.address, options=options) as channel:
            stub = translation_pb2_grpc.TranslationServiceStub(channel)
            call = stub.StreamTranslate(translation_pb2.StreamTranslateRequest(content=text))
            await call.read()
            num_plans = 0
            while num_plans < len(runner.plans):  # until flow control stops the server
                num_plans = len(runner.plans)
                for _ in range(100):
                    await made.client.list_models()
            call.cancel()
            await made.until_cancelled("StreamTranslate")
        await made.client.list_models()
    logs.close()
    entries = [json.loads(line) for line in log.getvalue().splitlines()]
    assert {entry["level"] for entry in entries} == {"info"}
    (line,) = [entry for entry in entries if entry.get("method") == "StreamTranslate"]
    assert line["code"] == "CANCELLED"


async def test_a_client_that_goes_amid_long_texts_takes_no_slot_with_it(
    tokenizer: Tokenizer,
) -> None:
    long = "A dog is running. " * 1000
    async with running_fake(fake_runner(tokenizer), tokenizer) as made:
        address = f"127.0.0.1:{made.server.port}"
        in_flight = "dragoman_requests_in_flight"
        for _ in range(6):
            async with grpc.aio.insecure_channel(address) as channel:
                stub = translation_pb2_grpc.TranslationServiceStub(channel)
                request = translation_pb2.TranslateRequest(contents=[long] * 3)
                calls = [stub.Translate(request) for _ in range(8)]
                while made.metric(in_flight, method="Translate") < len(calls):
                    await asyncio.sleep(0)
            while made.metric(in_flight, method="Translate"):
                await asyncio.sleep(0)
        answer = await made.client.translate(["A dog is running. " * 50], timeout=60)
        assert answer.translations[0].text.startswith("A dog is running.")

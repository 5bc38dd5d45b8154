"""Clients share a busy server, whatever the number of their texts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest

from dragoman import conversions, requests
from dragoman.client import AsyncClient, TranslationError
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from model.bundle.tokenizer import Tokenizer
from service.access.key_file import write_keys
from service.access.keys import new_key, principal_of
from service.batching.events import Iteration
from service.engine.engine import Engine
from service.models.registry import Registry
from service.observability.metrics import ServerMetrics
from tests.fake_runner import FakeRunner
from tests.integration.servers import any_ports, fake_runner, running, running_fake, served

NUM_CALLS = 100
TEXT = "The children swim."


@pytest.fixture
def runner(tokenizer: Tokenizer) -> FakeRunner:
    return fake_runner(tokenizer, max_rows=2)


async def place_of_the_last(
    runner: FakeRunner,
    tokenizer: Tokenizer,
    many_id: str,
    last_id: str,
    priority: str | None = None,
    api_key: str = "",
    keys: str = "",
) -> int:
    """Make 100 calls, then one with other metadata; returns how many began before that one."""
    # Sent without our own client, which refuses ids that no server accepts.
    metadata = [(conversions.CLIENT_ID, last_id)] if last_id else []
    if api_key:
        metadata.append(("x-api-key", api_key))
    request = pb.TranslateRequest(contents=[TEXT], options=requests.options(priority=priority))
    async with (
        running_fake(runner, tokenizer, drain_seconds=30.0, keys=keys) as server,
        AsyncClient(server.address, client_id=many_id, api_key=api_key) as many,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        engine = server.registry.get("fake").engine
        assert isinstance(engine, Engine)
        runner.hold()
        calls = [
            asyncio.ensure_future(many.translate([f"A dog is running {number}."]))
            for number in range(NUM_CALLS)
        ]
        while engine._admission.num_taken < NUM_CALLS:
            await asyncio.sleep(0)
        last = TranslationServiceStub(channel).Translate(request, metadata=metadata)
        while engine._admission.num_taken < NUM_CALLS + 1:
            assert not last.done()
            await asyncio.sleep(0)
        runner.release()
        answers = await asyncio.gather(*calls)
        assert all(answer.translations[0].error is None for answer in answers)
        assert (await last).translations[0].translated_text
    begun = [item.source_ids for plan in runner.plans for item in plan.encodes]
    assert len(begun) == NUM_CALLS + 1
    return begun.index((*tokenizer.encode(TEXT), tokenizer.eos_id))


EARLY, AT_THE_END = range(5), [NUM_CALLS]


@pytest.mark.parametrize(
    ("many_id", "last_id", "priority", "begins"),
    [
        pytest.param("many", "one", None, EARLY, id="one call beside a hundred of another"),
        pytest.param("many", "many", None, AT_THE_END, id="a client's own in order"),
        pytest.param("", "", None, AT_THE_END, id="without an id, the address is the client"),
        pytest.param("", "not an id", None, AT_THE_END, id="an id that is none"),
        pytest.param("many", "many", "high", EARLY, id="a high priority overtakes"),
    ],
)
async def test_whose_call_comes_when(
    runner: FakeRunner,
    tokenizer: Tokenizer,
    many_id: str,
    last_id: str,
    priority: str | None,
    begins: Sequence[int],
) -> None:
    assert await place_of_the_last(runner, tokenizer, many_id, last_id, priority) in begins


@pytest.mark.parametrize(("last_id", "begins"), [("one", EARLY), ("many", AT_THE_END)])
async def test_ids_of_one_key_share_what_it_gets(
    runner: FakeRunner, tokenizer: Tokenizer, tmp_path: Path, last_id: str, begins: Sequence[int]
) -> None:
    key, stored = new_key(principal_of({"name": "app", "tenant": "acme"}))
    path = tmp_path / "keys.jsonl"
    write_keys(path, {stored.id: stored})
    place = await place_of_the_last(runner, tokenizer, "many", last_id, api_key=key, keys=str(path))
    assert place in begins


async def test_two_hundred_calls_that_are_repeated_at_once_keep_nobody_out(
    tokenizer: Tokenizer,
) -> None:
    runner, metrics, settings = fake_runner(tokenizer, max_rows=16), ServerMetrics(), any_ports()
    model = served(runner, tokenizer, settings, metrics, refuses_overload=True)
    engine, num_refused = model.engine, 0
    assert isinstance(engine, Engine)
    # The engine has learnt that each row takes time: most of the two hundred calls would wait too
    # long, and half of the rows are enough.
    for rows in (1, 16):
        engine._admission.iterated([Iteration(0, rows, rows, seconds=0.016 * rows)] * 200)
    async with (
        running(settings, metrics, Registry([model])) as server,
        AsyncClient(server.address, client_id="many", patient=False, timeout=300) as many,
        contextlib.AsyncExitStack() as stack,
    ):

        async def repeat() -> None:
            nonlocal num_refused
            while True:
                try:
                    await many.translate([TEXT])
                except TranslationError as error:
                    if error.code is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                        raise
                    num_refused += 1

        runner.hold()
        stack.callback(runner.release)  # a step that is held holds the drain
        flood = [asyncio.create_task(repeat()) for _ in range(200)]
        stack.callback(lambda: [call.cancel() for call in flood])
        while num_refused < 200:
            await asyncio.sleep(0)
        assert engine._admission.is_overloaded
        held = engine._admission.num_taken
        ones = [
            await stack.enter_async_context(
                AsyncClient(server.address, client_id=f"one-{number}", patient=False)
            )
            for number in range(8)
        ]
        calls = [asyncio.ensure_future(one.translate([TEXT])) for one in ones]
        while engine._admission.num_taken < held + len(ones):
            assert not any(call.done() for call in calls)
            await asyncio.sleep(0)
        runner.release()
        answers = await asyncio.gather(*calls)
        assert all(answer.translations[0].error is None for answer in answers)

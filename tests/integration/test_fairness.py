"""Clients share a busy server, whatever the number of their texts."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.client import AsyncClient
from model.tokenizer import Tokenizer
from service.engine import Engine
from service.fake_runner import FakeRunner
from tests.integration.servers import fake_runner, running_fake

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
) -> int:
    """Somebody makes 100 calls, then somebody one more; how many were begun before that one."""
    async with (
        running_fake(runner, tokenizer, drain_seconds=30.0) as server,
        AsyncClient(server.address, client_id=many_id) as many,
        AsyncClient(server.address, client_id=last_id) as one,
    ):
        engine = server.registry.get("fake").engine
        assert isinstance(engine, Engine)
        runner.hold()
        calls = [
            asyncio.ensure_future(many.translate([f"A dog is running {number}."]))
            for number in range(NUM_CALLS)
        ]
        while engine.num_inside < NUM_CALLS:
            await asyncio.sleep(0)
        last = asyncio.ensure_future(one.translate([TEXT], priority=priority))
        while engine.num_inside < NUM_CALLS + 1:
            await asyncio.sleep(0)
        runner.release()
        answers = await asyncio.gather(*calls, last)
        assert all(answer.translations[0].error is None for answer in answers)
    begun = [item.source_ids for plan in runner.plans for item in plan.encodes]
    assert len(begun) == NUM_CALLS + 1
    return begun.index((*tokenizer.encode(TEXT), tokenizer.eos_id))


async def test_who_asks_once_does_not_wait_for_a_hundred_of_another(
    runner: FakeRunner, tokenizer: Tokenizer
) -> None:
    assert await place_of_the_last(runner, tokenizer, "many", "one") < 5


async def test_one_client_s_own_come_in_order(runner: FakeRunner, tokenizer: Tokenizer) -> None:
    assert await place_of_the_last(runner, tokenizer, "many", "many") == NUM_CALLS


async def test_without_an_id_the_address_is_the_client(
    runner: FakeRunner, tokenizer: Tokenizer
) -> None:
    assert await place_of_the_last(runner, tokenizer, "", "") == NUM_CALLS


async def test_an_id_that_is_none_is_not_believed(runner: FakeRunner, tokenizer: Tokenizer) -> None:
    assert await place_of_the_last(runner, tokenizer, "", "not an id") == NUM_CALLS


async def test_a_high_priority_overtakes(runner: FakeRunner, tokenizer: Tokenizer) -> None:
    assert await place_of_the_last(runner, tokenizer, "many", "many", "high") < 5

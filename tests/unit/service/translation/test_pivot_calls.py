"""Calls through a third language: deadlines, cancelling, admission, streams."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from model.bundle.tokenizer import Tokenizer
from service.domain.requests import (
    Priority,
)
from service.engine.engine import EngineConfig
from service.errors import (
    DeadlineExceededError,
    ResourceExhaustedError,
)
from service.translation.options import TranslateOptions
from service.translation.results import TextResult
from service.translation.translator import StreamDelta
from tests.fake_runner import FakeRunner
from tests.unit.service.translation.pivots import TEXT, idle, pivoting, streamed


@pytest.mark.parametrize("held", ["first", "second"])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_cancelled_call_leaves_both_engines(
    tokenizer: Tokenizer, held: str, streams: bool
) -> None:
    async with pivoting(tokenizer) as legs:
        runner: FakeRunner = getattr(legs, held).runner
        runner.hold()
        call = asyncio.create_task(
            streamed(legs.translator, TEXT) if streams else legs.translator.translate([TEXT])
        )
        await asyncio.to_thread(runner.wait_until_blocked)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await idle(legs)


@pytest.mark.parametrize("held", ["first", "second"])
async def test_the_deadline_holds_for_both_models(tokenizer: Tokenizer, held: str) -> None:
    now = 0.0

    def clock() -> float:
        return now

    async with pivoting(tokenizer, {"clock": clock}, clock=clock) as legs:
        runner: FakeRunner = getattr(legs, held).runner
        runner.hold()
        call = asyncio.create_task(legs.translator.translate([TEXT], deadline=100.0))
        await asyncio.to_thread(runner.wait_until_blocked)
        now = 101.0
        runner.release()
        with pytest.raises(DeadlineExceededError):
            await call
        assert await idle(legs)


async def test_a_full_second_engine_refuses_before_the_first_one_computes(
    tokenizer: Tokenizer,
) -> None:
    async with pivoting(tokenizer, max_rows=1, config=EngineConfig(max_waiting=1)) as legs:
        legs.second.runner.hold()
        busy = [
            asyncio.create_task(legs.second.translator.translate(["A dog."], client=client))
            for client in ("a", "b")
        ]
        await asyncio.to_thread(legs.second.runner.wait_until_blocked)
        with pytest.raises(ResourceExhaustedError):
            await legs.translator.translate([TEXT], client="c")
        with pytest.raises(ResourceExhaustedError):
            await streamed(legs.translator, TEXT)
        assert legs.first.runner.plans == []
        legs.second.runner.release()
        await asyncio.gather(*busy)
        assert await idle(legs)


async def test_client_priority_and_id_are_the_same_for_both_models(tokenizer: Tokenizer) -> None:
    async with pivoting(tokenizer) as legs:
        options = TranslateOptions(priority=Priority.HIGH)
        await legs.translator.translate(["A dog."], options, client="id:me", request_id="42")
    for each in (legs.first, legs.second):
        [request] = each.seen.requests
        assert (request.client, request.request_id) == ("id:me", "42")
        assert request.priority is Priority.HIGH


async def test_a_stream_begins_before_the_first_model_has_read_everything(
    tokenizer: Tokenizer,
) -> None:
    async with pivoting(tokenizer, {"max_rows": 1}) as legs:
        legs.first.runner.hold()
        stream = legs.translator.stream("A dog runs. It barks. Two men.")
        first = asyncio.ensure_future(anext(stream))
        legs.first.runner.allow(len(tokenizer.encode("A dog runs.")) + 2)
        delta = await first
        assert isinstance(delta, StreamDelta)
        assert delta.text.startswith("A")
        legs.first.runner.release()
        rest = [event async for event in stream]
        assert isinstance(rest[-1], TextResult)
        assert rest[-1].text == "A dog runs. It barks. Two men."


async def test_closing_a_stream_leaves_both_engines(tokenizer: Tokenizer) -> None:
    async with pivoting(tokenizer) as legs:
        stream = legs.translator.stream(TEXT * 20)
        assert isinstance(stream, AsyncGenerator)
        async with contextlib.aclosing(stream):
            await anext(stream)
        assert await idle(legs)


async def test_large_calls_pass_through_small_engines(tokenizer: Tokenizer) -> None:
    config = EngineConfig(max_waiting=2)
    async with pivoting(
        tokenizer, {"max_rows": 2, "config": config}, max_rows=1, config=config
    ) as legs:
        texts = [TEXT, "Two men.", TEXT] * 10
        results = await legs.translator.translate(texts)
        assert [result.text for result in results] == texts
        deltas, _ = await streamed(legs.translator, TEXT * 10)
        assert deltas == TEXT * 10
        assert await idle(legs)

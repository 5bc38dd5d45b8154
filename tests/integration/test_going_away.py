"""Clients that go away: their slots are free before the next step, and others don't notice."""

import asyncio

import grpc
import pytest

from dragoman.client import TranslationError
from model.tokenizer import Tokenizer
from tests.integration.servers import fake_runner, running_fake


async def test_a_cancelled_call_frees_its_slots_before_the_next_step(
    tokenizer: Tokenizer,
) -> None:
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer) as made:
        runner.hold()
        gone = asyncio.ensure_future(made.client.translate(["The children.", "The lake."]))
        stays = asyncio.ensure_future(made.client.translate(["A dog is running."]))
        while made.metric("dragoman_requests_in_flight", method="Translate") < 2:
            await asyncio.sleep(0)
        await asyncio.to_thread(runner.wait_until_blocked)
        # Two steps: whoever was not in the first joins in the second.
        runner.allow()
        await asyncio.to_thread(runner.wait_until_blocked)
        runner.allow()
        await asyncio.to_thread(runner.wait_until_blocked)
        before = len(runner.plans)
        gone.cancel()
        while made.metric("dragoman_requests_total", method="Translate", code="CANCELLED") < 1:
            await asyncio.sleep(0)
        runner.release()
        assert (await stays).translations[0].text == "A dog is running."
        # A plan is noted when it passes the gate: the first is the step that was under way when the
        # call was cancelled, and the last that has its rows.
        under_way, *later = [plan.num_rows for plan in runner.plans[before:]]
        assert under_way == 3
        assert set(later) == {1}
        finished = made.metric(
            "dragoman_finished_sentences_total", model="fake", reason="cancelled"
        )
        assert finished == 2


async def test_an_expired_call_frees_its_slot_and_others_go_on(tokenizer: Tokenizer) -> None:
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer) as made:
        runner.hold()
        late = asyncio.ensure_future(made.client.translate(["The children."], timeout=0.5))
        stays = asyncio.ensure_future(made.client.translate(["A dog is running."]))
        with pytest.raises(TranslationError) as caught:
            await late
        assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
        while not made.metric(
            "dragoman_requests_total", method="Translate", code="DEADLINE_EXCEEDED"
        ):
            await asyncio.sleep(0)
        before = len(runner.plans)
        runner.release()
        assert (await stays).translations[0].text == "A dog is running."
        later = [plan.num_rows for plan in runner.plans[before + 1 :]]  # all but the one under way
        assert set(later) == {1}


async def test_a_stream_that_is_closed_frees_its_slot(tokenizer: Tokenizer) -> None:
    runner = fake_runner(tokenizer)
    async with running_fake(runner, tokenizer) as made:
        runner.hold()
        stream = made.client.stream("A dog is running across the green field.")
        first = asyncio.ensure_future(anext(stream))
        while not first.done():
            await asyncio.to_thread(runner.wait_until_blocked)
            runner.allow()
            await asyncio.wait({first}, timeout=0.05)
        await stream.aclose()
        runner.release()
        while not made.metric(
            "dragoman_requests_total", method="StreamTranslate", code="CANCELLED"
        ):
            await asyncio.sleep(0)
        assert (await made.client.translate(["Two men."])).translations[0].text == "Two men."
        assert made.metric("dragoman_slots_used", model="fake") == 0

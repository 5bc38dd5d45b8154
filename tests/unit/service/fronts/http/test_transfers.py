"""Answers that wait to be written: bounded, and dropped once nothing waits for them."""

import asyncio
import threading

import pytest

from dragoman.v1 import translation_pb2 as pb
from service.common.fairness import in_thread
from service.errors import ResourceExhaustedError
from service.fronts.http.message_json import to_json
from service.fronts.http.transfers import HttpLimits, Transfers


async def _encode(transfers: Transfers, message: pb.TranslateResponse, host: str) -> int:
    write = lambda: to_json(message).encode()  # noqa: E731
    async with transfers.written(write, message.ByteSize(), host) as body:
        return len(body)


async def test_answers_wait_within_a_quota_and_end_with_their_calls() -> None:
    transfers, go_on = Transfers(HttpLimits(), 1000), threading.Event()
    before = asyncio.ensure_future(in_thread(go_on.wait))
    message = pb.TranslateResponse(model="x" * 2**24)
    waiting = [asyncio.ensure_future(_encode(transfers, message, f"h{i}")) for i in range(2)]
    await asyncio.sleep(0)
    assert transfers.leaving.num_taken == 2 * 3 * message.ByteSize()
    with pytest.raises(ResourceExhaustedError) as refused:
        await _encode(transfers, message, "h0")
    assert refused.value.reason == "answers"
    assert await _encode(transfers, pb.TranslateResponse(), "h0") < 1000  # small ones don't wait
    waiting[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    assert transfers.leaving.num_taken == 3 * message.ByteSize()
    go_on.set()
    assert await waiting[1] > 2**24
    assert transfers.leaving.num_taken == 0
    await before


async def test_an_answer_larger_than_the_quota_is_sent_alone() -> None:
    transfers = Transfers(HttpLimits(), 1000)
    message = pb.TranslateResponse(model="x" * 2**26)
    assert await _encode(transfers, message, "h") > transfers.leaving.capacity // 2

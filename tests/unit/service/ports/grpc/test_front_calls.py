"""Calls of a front process: whatever it says, and whenever, each call ends once and is released."""

from __future__ import annotations

import asyncio
import itertools
import math
from typing import Any

import grpc
import pytest

from service.ports.grpc.front_processes.calls import FrontCalls
from service.ports.grpc.front_processes.frames import (
    MESSAGE_BYTES,
    WINDOW_BYTES,
    Frame,
    FrameKind,
)


class Calls:
    """The calls of a front process that the test plays, of one method that answers when told.

    Attributes:
        sent: frames to the front process.
        released: number of calls that have been released.
    """

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self.released = 0
        self.may_answer = asyncio.Event()
        handler: Any = grpc.unary_unary_rpc_method_handler(self._answer, response_serializer=bytes)
        self.calls = FrontCalls([handler])
        connection: Any = self
        self.calls.connection = connection

    def send(self, frame: Frame) -> None:
        """Take a frame in place of a connection."""
        self.sent.append(frame)

    async def _answer(self, data: bytes, context: Any) -> bytes:
        context.add_done_callback(self._release)
        await self.may_answer.wait()
        return data

    def _release(self, context: object) -> None:
        self.released += 1

    def take(self, kind: FrameKind, *fields: bytes) -> None:
        """Take a frame of call 1 from the front process."""
        self.calls.take(Frame(kind, 1, 0, math.inf, fields))


async def iterations(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("last", [FrameKind.SENT, FrameKind.CANCEL])
@pytest.mark.parametrize("when", range(8))
async def test_an_answer_is_released_when_it_has_left_or_never_will(
    last: FrameKind, when: int
) -> None:
    """However many iterations of the loop after the answer the front process says so."""
    front = Calls()
    front.take(FrameKind.CALL, b"peer", b"text")
    await iterations(3)
    front.may_answer.set()
    while not front.sent:
        await asyncio.sleep(0)
    assert front.sent == [Frame(FrameKind.ANSWER, 1, 1, math.inf, [b"text"])]
    await iterations(when)
    assert front.released == 0
    front.take(last)
    await iterations(8)
    assert front.released == 1
    front.take(FrameKind.CANCEL)  # too late, and without effect
    await iterations(3)
    assert (front.released, len(front.sent)) == (1, 1)


@pytest.mark.parametrize("when", range(6))
@pytest.mark.parametrize("end", ["cancel", "death"])
async def test_a_call_that_is_cancelled_is_released(end: str, when: int) -> None:
    front = Calls()
    front.take(FrameKind.CALL, b"peer", b"text")
    await iterations(when)
    if end == "cancel":
        front.take(FrameKind.CANCEL)
    else:
        front.calls.cancel_all()
    await iterations(8)
    assert front.released == (when > 0)  # before that, its handler has not begun
    assert not front.calls._running
    assert not front.calls._leaving


async def test_answers_on_their_way_are_released_when_the_process_dies() -> None:
    front = Calls()
    front.may_answer.set()
    front.take(FrameKind.CALL, b"peer", b"text")
    for _ in itertools.takewhile(lambda _: not front.calls._leaving, itertools.count()):
        await asyncio.sleep(0)
    front.calls.cancel_all()
    assert front.released == 1


async def test_an_error_of_a_handler_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(data: bytes, context: Any) -> bytes:
        raise ValueError("secret")

    front = Calls()
    handler: Any = grpc.unary_unary_rpc_method_handler(fail, response_serializer=bytes)
    front.calls._handlers = [handler]
    front.take(FrameKind.CALL, b"peer", b"text")
    await iterations(4)
    internal = grpc.StatusCode.INTERNAL.value[0]
    assert front.sent == [Frame(FrameKind.STATUS, 1, internal, math.inf, [b"internal error"])]
    assert "secret" in caplog.text


async def test_messages_wait_while_too_much_has_not_been_taken() -> None:
    """As many are sent ahead as the window has room for, and one more."""

    async def stream(data: bytes, context: Any) -> None:
        for number in range(100):
            await context.write(bytes([number]) * 1000)

    front = Calls()
    handler: Any = grpc.unary_stream_rpc_method_handler(stream, response_serializer=bytes)
    front.calls._handlers = [handler]
    front.take(FrameKind.CALL, b"peer", b"text")
    await iterations(4)
    size = 1000 + MESSAGE_BYTES
    ahead = WINDOW_BYTES // size + 1
    assert len(front.sent) == ahead
    front.calls.take(Frame(FrameKind.WRITTEN, 1, size))
    await iterations(4)
    assert len(front.sent) == ahead + 1
    while front.calls._running:
        front.calls.take(Frame(FrameKind.WRITTEN, 1, 10 * size))
        await iterations(4)
    *messages, status = front.sent
    assert [frame.fields for frame in messages] == [[bytes([n]) * 1000] for n in range(100)]
    assert (status.kind, status.number) == (FrameKind.STATUS, 0)

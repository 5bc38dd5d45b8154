"""A load of calls that are cancelled before their answer."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import grpc

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub

if TYPE_CHECKING:  # it is only in the stub file
    from dragoman.v1.translation_pb2_grpc import TranslationServiceAsyncStub


class Canceller:
    """Starts calls at random times and cancels each shortly after.

    Args:
        server: HOST:PORT.
        texts: texts to send.
        rate: calls per second.
        patience: longest time before a call is cancelled, in seconds.

    Attributes:
        num_cancelled: number of calls cancelled so far.
        num_answered: number of calls answered before they could be cancelled.
        errors: number of calls that failed otherwise, by gRPC code.
        messages: example of a message for each code.
    """

    def __init__(self, server: str, texts: Sequence[str], rate: float, patience: float) -> None:
        self._server = server
        self._texts = texts
        self._rate = rate
        self._patience = patience
        self._draw = random.Random(0)  # nothing is kept secret by it
        self.num_cancelled = 0
        self.num_answered = 0
        self.errors: Counter[str] = Counter()
        self.messages: dict[str, str] = {}

    async def run(self, seconds: float) -> None:
        """Start calls for `seconds`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        async with grpc.aio.insecure_channel(self._server) as channel:
            stub = TranslationServiceStub(channel)
            async with asyncio.TaskGroup() as group:
                while (now := loop.time()) < end:
                    group.create_task(self._call(stub))
                    await asyncio.sleep(min(self._draw.expovariate(self._rate), end - now))

    async def _call(self, stub: TranslationServiceAsyncStub) -> None:
        text = self._draw.choice(self._texts)
        call = stub.Translate(pb.TranslateRequest(contents=[text]), timeout=60.0)
        await asyncio.sleep(self._draw.uniform(0.0, self._patience))
        if call.cancel():
            self.num_cancelled += 1
            return
        try:
            await call
            self.num_answered += 1
        except grpc.aio.AioRpcError as exc:
            code = exc.code().name
            self.errors[code] += 1
            self.messages.setdefault(code, exc.details() or "")

"""Keys that expire while a call runs: a key is checked only at the beginning of a call."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from service.access.authentication import AccessControl
from service.access.principal import Limits, Principal
from tests.client_errors import status_error_of
from tests.unit.service.fronts.grpc.scripted_service import serving

EXPIRES = 1000.0


class OneKey:
    """Knows a key until it is revoked."""

    def __init__(self) -> None:
        self.is_revoked = False

    async def authenticate(self, credential: str) -> Principal | None:
        limits = Limits(requests_per_minute=10, characters_per_day=100)
        return None if self.is_revoked else Principal("key:me", limits=limits, expires=EXPIRES)


@pytest.mark.parametrize(
    ("ends", "message"),
    [("expires", "the API key has expired"), ("is revoked", "the API key is not valid")],
)
async def test_a_stream_goes_on_whose_key_ends_and_the_next_call_is_refused(
    ends: str, message: str
) -> None:
    now, keys, may_go_on = EXPIRES - 1.0, OneKey(), asyncio.Event()
    access = AccessControl([keys], clock=lambda: now)
    async with (
        serving(max_calls=4, access=access) as served,
        grpc.aio.insecure_channel(served.address) as channel,
    ):

        async def wait() -> None:
            await may_go_on.wait()

        served.service.behaviour = wait
        stub, metadata = TranslationServiceStub(channel), [("x-api-key", "a key")]
        stream: Any = stub.StreamTranslate(
            pb.StreamTranslateRequest(content="a"), metadata=metadata
        )
        assert (await stream.read()).delta.text == "first"
        if ends == "expires":
            now += 2.0
        else:
            keys.is_revoked = True
        may_go_on.set()
        assert (await stream.read()).HasField("summary")
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK
        error = await status_error_of(
            stub.Translate(pb.TranslateRequest(contents=["a"]), metadata=metadata)
        )
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        assert error.details() == message

"""Servers with a file of keys."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from model.bundle.tokenizer import Tokenizer
from service.access import keys
from service.access.key_file import write_keys
from tests.fake_runner import FakeRunner
from tests.integration.servers import Running, running_fake

TEXT = "A dog."


class KeyFile:
    """A file of keys, and the keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stored: dict[str, keys.StoredKey] = {}

    def add(self, name: str, **values: Any) -> str:
        """Add a key, and return it."""
        key, stored = keys.new_key(keys.principal_of({"name": name, **values}))
        self.stored[stored.id] = stored
        write_keys(self.path, self.stored)
        return key

    def revoke(self, name: str) -> None:
        """Remove a key."""
        self.stored = {i: k for i, k in self.stored.items() if k.principal.name != name}
        write_keys(self.path, self.stored)


@contextlib.asynccontextmanager
async def serving(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile, **settings: Any
) -> AsyncIterator[tuple[Running, Any]]:
    """A server with keys, and a stub that sends no key by default."""
    given = {"keys": str(file.path), "http_port": 0, **settings}
    async with (
        running_fake(runner, tokenizer, **given) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        yield server, TranslationServiceStub(channel)


async def failure(call: Any) -> tuple[grpc.StatusCode, str, float]:
    """The code, message and seconds until a retry of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    trailing = dict(caught.value.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    info, seconds = error_details_pb2.RetryInfo(), 0.0
    for detail in status.details:
        if detail.Unpack(info):
            seconds = info.retry_delay.ToNanoseconds() / 1e9
    return caught.value.code(), caught.value.details() or "", seconds


def request(*texts: str, **fields: Any) -> pb.TranslateRequest:
    return pb.TranslateRequest(contents=texts or [TEXT], **fields)


def by_bearer(key: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {key}"),)

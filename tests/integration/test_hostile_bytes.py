"""Bytes whose cost is in their number don't block the event loop, which `serving` checks."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from model.bundle.tokenizer import Tokenizer
from tests.integration.http_client import post
from tests.integration.http_serving import TRANSLATE, serving
from tests.integration.servers import Running
from tests.robustness.hostile.raw import RAW_ATTACKS

_CONNECTIONS = 4
_STATUSES = {
    "chunks": {400},
    "chunks-front": {400},
    # The answers to their heads come before the bodies.
    "chunks-missing": {404},
    "chunks-host": {403},
    "chunk-extensions": {400},
    "trailers": {431},
    "header-lines": {431},
    "pipelined": {404},
}


@pytest.mark.parametrize("name", _STATUSES)
async def test_floods_of_small_things(tokenizer: Tokenizer, name: str) -> None:
    attack = RAW_ATTACKS[name]()
    async with serving(tokenizer) as made:
        data = attack.head + 2 * attack.piece
        flood = asyncio.gather(*(_answer(made, data) for _ in range(_CONNECTIONS)))
        answer = await post(made, TRANSLATE, {"contents": ["A dog."]})
        assert answer.json["translations"][0]["translatedText"] == "A dog."
        assert set(await flood) == _STATUSES[name]


async def _answer(made: Running, data: bytes) -> int:
    """The status of the first answer on a connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
    try:
        writer.write(data)
        return int((await reader.readline()).split()[1])
    finally:
        writer.transport.abort()


async def test_a_refused_body_is_told_why_though_more_follows(tokenizer: Tokenizer) -> None:
    attack = RAW_ATTACKS["chunks"]()
    async with serving(tokenizer) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
        with contextlib.suppress(ConnectionError):
            writer.write(attack.head)
            for _ in range(8):
                writer.write(attack.piece)
                await writer.drain()
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert head.startswith(b"HTTP/1.1 400 ")
        error = json.loads(body)
        assert error["code"] == 3
        assert error["message"] == "body: chunks of 1.0 bytes on average, 16 is the least"


@pytest.mark.parametrize("size", [1, 20])
async def test_honest_bodies_in_small_chunks_are_answered(tokenizer: Tokenizer, size: int) -> None:
    """Even of one byte, if the body is short."""
    message: Any = {"contents": ["A dog."] * (20 if size == 1 else 400)}
    body = json.dumps(message).encode()
    chunks = b"".join(
        b"%x\r\n%b\r\n" % (len(part), part)
        for part in (body[start : start + size] for start in range(0, len(body), size))
    )
    async with serving(tokenizer) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.server.http_port)
        head = f"POST {TRANSLATE} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        kinds = "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write((head + kinds).encode() + chunks + b"0\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b'"A dog."') == len(message["contents"])

"""Defaults of a server: the addresses it listens on, and the content of its log."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import grpc
import pytest

from bench.processes import descendants
from dragoman import AsyncClient, TranslationError
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from service.settings import Settings
from tests.integration.keyed import KeyFile
from tests.integration.listening import listening
from tests.integration.servers import ServerProcess, page, server_process
from tests.otlp_receiver import grpc_receiver

# 127.0.0.1, as /proc/net/tcp has it, and as tcp6 has it for gRPC.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
WORD = "Xylophon"  # of every text here
UNKNOWN_KEY = "drg_0123456789abcdef_" + "A" * 43


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_two_ports_listen_and_only_on_loopback(bundle_path: Path) -> None:
    async with server_process("--model", bundle_path) as server:
        addresses = listening([server.process.pid, *descendants(server.process.pid)])
        port = int(server.address.rpartition(":")[2])
    assert len(addresses) == 2
    assert {address.rpartition(":")[0] for address in addresses} <= LOOPBACK
    assert port in [int(address.rpartition(":")[2], 16) for address in addresses]


def test_the_defaults_are_the_documented_ports() -> None:
    settings = Settings()
    assert (settings.port, settings.metrics_port) == (50051, 9464)
    assert (settings.http_port, settings.admin_port) == (-1, -1)
    assert {settings.host, settings.metrics_host, settings.http_host} == {"127.0.0.1"}


async def test_neither_logs_nor_metrics_nor_traces_hold_a_text_or_a_key(
    bundle_path: Path, tmp_path: Path
) -> None:
    key = KeyFile(tmp_path / "keys.jsonl").add("reader")
    with grpc_receiver() as received:
        options = ("--log-level", "debug", "--http-port", "0", "--keys", tmp_path / "keys.jsonl")
        async with server_process(
            "--model", bundle_path, "--tracing", *options, variables=received.variables()
        ) as server:
            (line,) = [entry for entry in server.log if entry["message"] == "serving"]
            await call_in_all_ways(server, str(line["http"]), key)
            metrics = await page(str(line["metrics"]))
            server.terminate()
            assert await server.end() == 0
    exported = b"".join(request.SerializeToString() for request in received.requests)
    assert len([entry for entry in server.log if entry["message"] == "call"]) >= 6
    assert received.spans()
    for secret in (WORD, key, UNKNOWN_KEY, key.split("_", 2)[2]):
        assert secret not in repr(server.log)
        assert secret not in metrics
        assert secret.encode() not in exported


async def call_in_all_ways(server: ServerProcess, url: str, key: str) -> None:
    """Make calls that succeed, and calls that fail for every possible reason."""
    async with AsyncClient(server.address, timeout=60, api_key=key) as client:
        await client.translate([f"A {WORD} .", f"\0{WORD}"], source="en", target="de")
        async for _ in client.stream(f"A {WORD} .", source="en", target="de"):
            pass
        await client.score([(f"A {WORD} .", f"{WORD} .")], source="en", target="de")
        for source, model in ((WORD, ""), ("en", WORD)):
            with pytest.raises(TranslationError):
                await client.translate([WORD], source=source, target="de", model=model)
    async with AsyncClient(server.address, timeout=60, api_key=UNKNOWN_KEY) as stranger:
        with pytest.raises(TranslationError):
            await stranger.translate([WORD], source="en", target="de")
    async with grpc.aio.insecure_channel(server.address) as channel:
        odd = (
            ("authorization", f"Bearer {key}"),
            ("traceparent", WORD),
            ("tracestate", f"{WORD}=={key}"),
            ("x-request-id", f"{WORD} {WORD}"),
        )
        request = pb.TranslateRequest(contents=[WORD])
        await TranslationServiceStub(channel).Translate(request, metadata=odd)
    bodies = (f'{{"contents": ["{WORD}"]}}', f'{{"contents": "{WORD}', f'{{"{WORD}": 1}}')
    for body in bodies:
        for authorization in (f"Bearer {key}", f"Bearer {UNKNOWN_KEY}", f"Basic {key}"):
            await post(url, body, authorization)


async def post(url: str, body: str, authorization: str) -> None:
    """POST a body with curl's headers, whatever the answer."""
    found = re.fullmatch(r"http://(.+):(\d+)/?", url)
    assert found is not None
    reader, writer = await asyncio.open_connection(found[1], int(found[2]))
    head = (
        f"POST /v1/translate HTTP/1.1\r\nhost: localhost\r\nauthorization: {authorization}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
    )
    writer.write(f"{head}\r\n{body}".encode())
    assert (await reader.read()).startswith(b"HTTP/1.1 ")
    writer.close()

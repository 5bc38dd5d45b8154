"""Documents that block their reader: the effect on them, on others, and on the server."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.client import AsyncClient, Glossary, TranslationError
from model.bundle.tokenizer import Tokenizer
from service.models.registry import Registry
from service.observability.metrics import ServerMetrics
from tests.client_errors import refused
from tests.factories import tiny_tokenizer
from tests.integration import held_server
from tests.integration.http_client import Answer, ask, post
from tests.integration.keyed import KeyFile
from tests.integration.servers import (
    Running,
    ServerProcess,
    any_ports,
    fake_runner,
    python_process,
    running,
    running_echoes,
    served,
)
from tests.unit.service.documents.hostile_readers import MODULE, Held, ended

TEXT = b"A dog runs.\n\nIt barks.\n"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses descriptors of processes")


def with_hostile_readers(
    tokenizer: Tokenizer, **values: Any
) -> contextlib.AbstractAsyncContextManager[Running]:
    """A server of one model, with `hostile_readers` for documents."""
    metrics, settings = ServerMetrics(), any_ports(**values)
    registry = Registry([served(fake_runner(tokenizer), tokenizer, settings, metrics)])
    return running(settings, metrics, registry, MODULE)


async def translate(client: AsyncClient, content: bytes, **options: Any) -> bytes:
    answer = await client.translate_document(content, "a.txt", source="en", target="de", **options)
    return answer.content


def num_read(server: Running) -> float:
    """The number of documents that workers have read."""
    return server.metric("dragoman_document_work_duration_seconds_count", work="read")


def num_killed(server: Running, reason: str) -> float:
    return server.metric("dragoman_document_workers_killed_total", reason=reason)


# --- others --------------------------------------------------------------------------------------


async def test_texts_and_documents_go_on_beside_files_that_hold_their_readers(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    held = Held(tmp_path)
    async with (
        with_hostile_readers(tokenizer, document_seconds=3600) as server,
        AsyncClient(server.address, timeout=60, client_id="hostile") as hostile,
        AsyncClient(server.address, timeout=60, client_id="innocent") as innocent,
    ):
        calls = [asyncio.ensure_future(translate(hostile, held.content)) for _ in range(8)]
        process = await asyncio.to_thread(held.begun)
        for _ in range(3):
            assert await translate(innocent, TEXT) == TEXT
            assert (await innocent.translate(["A dog."])).translations[0].text
        assert not any(call.done() for call in calls)
        for call in calls:
            call.cancel()
        await asyncio.to_thread(ended, process)
        assert num_killed(server, "cancelled") >= 1


async def test_a_document_of_many_parts_leaves_the_event_loop_to_others(
    tokenizer: Tokenizer,
) -> None:
    parts = (f"This is the green house number {number}." for number in range(25_000))
    content = "\n\n".join(parts).encode()
    async with running_echoes(tokenizer, "en-de", "de-en") as server:  # which watches the loop
        answer = await server.client.translate_document(
            content, "a.txt", source="auto", target="en"
        )
    assert (answer.detected_language, answer.num_segments) == ("en", 25_000)
    assert answer.content == content


async def test_each_limit_has_its_error(tokenizer: Tokenizer, tmp_path: Path) -> None:
    held = Held(tmp_path, "wait")
    async with with_hostile_readers(
        tokenizer, document_seconds=1, document_memory=64, http_port=0
    ) as server:
        for content, code, message in (
            (b"loop /dev/null", "INVALID_ARGUMENT", "content: reading it takes more than 1 s of"),
            (b"grow", "INVALID_ARGUMENT", "content: reading it takes more than 64 MiB of memory"),
            (b"kill 11", "INTERNAL", "internal error"),
            (
                b"kill 9",
                "INVALID_ARGUMENT",
                "content: reading it takes more memory than the server",
            ),
        ):
            await refused(translate(server.client, content), code, message)
        assert await translate(server.client, TEXT) == TEXT
        answer = await upload(server, b"grow")
        assert (answer.status, answer.json["error"]) == (
            400,
            "file: reading it takes more than 64 MiB of memory, the limit",
        )
        async with AsyncClient(server.address, timeout=2) as hurried:
            call = asyncio.ensure_future(translate(hurried, held.content))
            process = await asyncio.to_thread(held.begun)
            await refused(call, "DEADLINE_EXCEEDED")
        await asyncio.to_thread(ended, process)
        assert num_killed(server, "cancelled") == 1


# --- before a document is read -------------------------------------------------------------------


async def upload(server: Running, content: bytes, **headers: str) -> Answer:
    """Send a file as LibreTranslate's clients do."""
    parts = {
        'name="file"; filename="a.txt"': content,
        'name="source"': b"en",
        'name="target"': b"de",
    }
    body = b"".join(
        b"--xyz\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % (name.encode(), value)
        for name, value in parts.items()
    )
    kind = "multipart/form-data; boundary=xyz"
    return await ask(
        server, "POST", "/translate_file", body + b"--xyz--\r\n", content_type=kind, **headers
    )


async def test_a_call_that_can_t_succeed_reads_no_document(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    file = KeyFile(tmp_path / "keys")
    made = {
        "exhausted": file.add("exhausted", characters_per_month=1),
        "other-model": file.add("other-model", models=["de-en"]),
        "low": file.add("low", max_priority="low"),
    }
    settings = {"keys": str(tmp_path / "keys"), "http_port": 0}
    async with running_echoes(tokenizer, "en-de", "de-en", **settings) as server:

        async def refuses(key: str, code: str, **arguments: Any) -> None:
            chosen = {"source": "en", "target": "de", **arguments}
            async with AsyncClient(server.address, timeout=60, api_key=made[key]) as client:
                await refused(client.translate_document(b"\xff", "a.txt", **chosen), code)

        async with AsyncClient(server.address, api_key=made["exhausted"]) as client:
            await client.translate(["A"], source="en", target="de")
        for source in ("en", "auto"):
            await refuses("exhausted", "RESOURCE_EXHAUSTED", source=source)
            await refuses("other-model", "PERMISSION_DENIED", source=source)
            await refuses("other-model", "PERMISSION_DENIED", source=source, model="en-de")
            await refuses("low", "PERMISSION_DENIED", source=source, priority="high")
            await refuses("low", "NOT_FOUND", source=source, target="fr")
            await refuses("low", "NOT_FOUND", source=source, model="none")
        await refuses("low", "NOT_FOUND", glossary=Glossary(name="none"))
        answer = await upload(server, b"\xff", x_api_key=made["exhausted"])
        assert answer.status == 429
        body = {"content": "/w==", "fileName": "a.txt", "targetLanguageCode": "de"}
        answer = await post(server, "/v1/translate:document", body, x_api_key=made["exhausted"])
        assert answer.status == 429
        assert num_read(server) == 0
        # Whether it is text is known only then.
        await refuses("low", "INVALID_ARGUMENT")
        assert num_read(server) == 1


# --- the end -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def held_call(
    folder: Path,
) -> AsyncIterator[tuple[ServerProcess, asyncio.Future[bytes], int]]:
    """A server in a process, a call whose document is being read, and the worker that reads it."""
    tiny_tokenizer(folder)
    held = Held(folder)
    async with (
        python_process(held_server.__file__, folder) as server,
        AsyncClient(server.address, timeout=100) as client,
    ):
        call = asyncio.ensure_future(translate(client, held.content))
        yield server, call, await asyncio.to_thread(held.begun)


async def test_a_document_does_not_hold_the_end(tmp_path: Path) -> None:
    async with held_call(tmp_path) as (server, call, process):
        server.terminate()
        await refused(call, "UNAVAILABLE")
        assert await server.end() == 0
        await asyncio.to_thread(ended, process)
    assert server.log[-1]["message"] == "stopped"


async def test_a_server_that_is_killed_leaves_no_document_behind(tmp_path: Path) -> None:
    async with held_call(tmp_path) as (server, call, process):
        server.process.kill()
        await asyncio.to_thread(ended, process)
        with pytest.raises(TranslationError):
            await call
        # The template writes there too, so that the log ends when it has ended.
        assert server.process.stderr is not None
        await server.process.stderr.read()


async def test_a_text_in_a_thread_does_not_hold_the_end(tmp_path: Path) -> None:
    tiny_tokenizer(tmp_path)
    async with python_process(held_server.__file__, tmp_path, "thread") as server:
        server.terminate()
        assert await server.end() == 0
    assert server.log[-1]["message"] == "stopped"

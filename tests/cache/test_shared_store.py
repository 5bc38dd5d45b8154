"""Servers that share a response cache in Valkey or Redis, which is killed and restarted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from redis.asyncio import Redis

from tests.factories import tiny_bundle
from tests.integration.servers import Running, running_bundle

pytestmark = pytest.mark.cache

TEXTS = ["A dog runs.", "Two men are playing chess."]
PASSWORD = "much-too-secret"
DOWN, UP = "the shared cache can't be used; calls go on without it", "the shared cache is in use"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("bundles") / "tiny", name="tiny").path


def store_program() -> str:
    """The path of a server. Without one, the test is skipped, or fails in `make test-cache`."""
    if found := shutil.which("valkey-server") or shutil.which("redis-server"):
        return found
    message = "neither valkey-server nor redis-server is installed: Debian's `redis-server` has one"
    if os.environ.get("DRAGOMAN_REQUIRE_TOOLS"):
        pytest.fail(message)
    pytest.skip(message)


class Store:
    """A real server, which can be killed and started again on the same port."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._command = [store_program(), "--port", "0", "--save", "", "--dir", str(folder)]
        self._command += ["--requirepass", PASSWORD, *options]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if b"accept connections" in line:
                return
        raise AssertionError("the store did not start")

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@contextlib.asynccontextmanager
async def started(folder: Path, *options: str) -> AsyncIterator[Store]:
    store = Store(folder, *options)
    await store.start()
    try:
        yield store
    finally:
        await store.kill()


def socket_of(folder: Path) -> tuple[str, str]:
    """The options of a store on a Unix socket, which no other program can take, and its URL."""
    path = folder / "store.socket"
    return str(path), f"unix://:{PASSWORD}@{path}"


def serving(bundle: Path, url: str, **settings: Any) -> Any:
    # On a busy machine, an answer may take long.
    given = {"cache_memory": 1, "cache_url": url, "cache_seconds": 30.0, "in_process": True}
    return running_bundle(bundle, **given, **settings)


async def logged(caplog: pytest.LogCaptureFixture, message: str, count: int) -> None:
    """Wait until a message was logged so many times."""
    async with asyncio.timeout(60):
        while lines(caplog).count(message) < count:
            await asyncio.sleep(0.01)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "dragoman.cache"]


async def written(url: str, count: int) -> None:
    """Wait until the store has so many values, besides the probe."""
    async with asyncio.timeout(60), Redis.from_url(url) as client:
        while await client.dbsize() <= count:
            await asyncio.sleep(0.01)


def asked(server: Running, result: str) -> float:
    return server.metric("dragoman_response_cache_store_keys_total", result=result)


async def test_a_second_server_computes_nothing(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.cache")
    path, url = socket_of(tmp_path)
    async with started(tmp_path, "--unixsocket", path):
        async with serving(bundle, url) as first:
            await logged(caplog, UP, 1)
            expected = await first.client.translate(TEXTS)
            assert asked(first, "miss") == 2
            await written(url, 2)
        async with serving(bundle, url) as second:
            await logged(caplog, UP, 2)
            batch = await second.client.translate(TEXTS)
            for translation, other in zip(batch.translations, expected.translations, strict=True):
                assert translation.text == other.text
                assert translation.num_cached_characters > 0
            assert asked(second, "hit") == 2
            assert second.metric("dragoman_encoded_sentences_total", model="tiny") == 0
    assert lines(caplog) == [UP, UP]
    assert PASSWORD not in str([vars(each) for each in caplog.records])


async def test_foreign_values_are_misses(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.cache")
    path, url = socket_of(tmp_path)
    async with started(tmp_path, "--unixsocket", path), Redis.from_url(url) as client:
        async with serving(bundle, url) as first:
            await logged(caplog, UP, 1)
            expected = await first.client.translate(TEXTS)
            await written(url, 2)
        keys = [key async for key in client.scan_iter() if key != b"dragoman:probe"]
        await client.set(keys[0], b"\x00" * 100)
        await client.delete(keys[1])
        await client.rpush(keys[1], "a", "list")
        async with serving(bundle, url) as second:
            await logged(caplog, UP, 2)
            batch = await second.client.translate(TEXTS)
            assert [each.text for each in batch.translations] == [
                each.text for each in expected.translations
            ]
            assert [each.num_cached_characters for each in batch.translations] == [0, 0]


async def test_calls_go_on_while_the_store_is_killed_and_restarted(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.cache")
    path, url = socket_of(tmp_path)
    async with started(tmp_path, "--unixsocket", path) as store, serving(bundle, url) as server:
        expected = [each.text for each in (await server.client.translate(TEXTS)).translations]
        num_calls, ends = 0, asyncio.Event()

        async def call(client: int) -> None:
            nonlocal num_calls
            number = 0
            while not ends.is_set():
                number += 1
                new = f"Client {client} has {number} dogs."  # of which the store knows nothing
                batch = await server.client.translate([*TEXTS, new])
                assert not [each.error for each in batch.translations if each.error]
                assert [each.text for each in batch.translations[:2]] == expected
                num_calls += 1

        async def more(count: int) -> None:
            target = num_calls + count
            while num_calls < target and not any(each.done() for each in calls):
                await asyncio.sleep(0.01)

        calls = [asyncio.create_task(call(number)) for number in range(4)]
        for outage in range(2):
            await logged(caplog, UP, 1 + outage)
            await more(20)
            await store.kill()
            await logged(caplog, DOWN, 1 + outage)
            await more(20)
            await store.start()
        await logged(caplog, UP, 3)
        missed = asked(server, "miss")
        await more(20)
        assert asked(server, "miss") > missed  # it is asked again
        await written(url, 5)
        ends.set()
        await asyncio.gather(*calls)
    assert lines(caplog) == [UP, DOWN, UP, DOWN, UP]
    assert PASSWORD not in str([vars(each) for each in caplog.records])


async def test_a_store_without_memory_left(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.cache")
    path, url = socket_of(tmp_path)
    options = "--unixsocket", path, "--maxmemory", "1", "--maxmemory-policy", "noeviction"
    async with started(tmp_path, *options), serving(bundle, url) as server:
        await logged(caplog, DOWN, 1)
        batch = await server.client.translate(TEXTS)
        assert not [each.error for each in batch.translations if each.error]
    assert lines(caplog) == [DOWN]


async def test_a_store_over_tls(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.cache")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    port = await free_port()
    files = [f"--tls-{each}-file" for each in ("cert", "key", "ca-cert")]
    paths = [str(tmp_path / f"{each}.pem") for each in ("cert", "key", "ca")]
    options = [each for pair in zip(files, paths, strict=True) for each in pair]
    options += ["--tls-port", str(port), "--tls-auth-clients", "no", "--bind", "127.0.0.1"]
    url = f"rediss://:{PASSWORD}@127.0.0.1:{port}/0"
    async with started(tmp_path, *options):
        async with serving(bundle, f"{url}?ssl_ca_certs={tmp_path}/ca.pem") as server:
            await logged(caplog, UP, 1)
            await server.client.translate(TEXTS)
            assert asked(server, "miss") == 2
        async with serving(bundle, url):  # an authority that it does not know
            await logged(caplog, DOWN, 1)
    assert lines(caplog) == [UP, DOWN]


async def free_port() -> int:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        return int(server.sockets[0].getsockname()[1])

"""TLS on real ports: gRPC, HTTP, metrics; clients with and without certificates; replacement."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from bench.load.errors import ServerError
from bench.load.grpc_call import find_server
from bench.load.plan import LoadPlan
from cli.exits import describe
from dragoman.client import AsyncClient, Client, Tls, TranslationError
from model.bundle.tokenizer import Tokenizer
from service.ports import certificates
from service.ports.healthcheck import problem
from tests.certificates import NAME, CertificateFolder
from tests.client_errors import error_of
from tests.integration.servers import Running, done, fake_runner, page, running_fake

TEXT = "A dog."


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    return CertificateFolder.made(tmp_path / "certificates")


@contextlib.asynccontextmanager
async def secure(
    folder: CertificateFolder, tokenizer: Tokenizer, *, mutual: bool = False
) -> AsyncIterator[Running]:
    settings = {"http_port": 0, **folder.settings(mutual=mutual)}
    async with running_fake(fake_runner(tokenizer), tokenizer, **settings) as made:
        yield made


async def handshake(port: int, context: ssl.SSLContext) -> tuple[str, str]:
    """The TLS version of a port, and the serial number of its certificate."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    connection = writer.get_extra_info("ssl_object")
    writer.close()
    return connection.version(), connection.getpeercert()["serialNumber"].lstrip("0")


def trusting(folder: CertificateFolder) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=folder.ca)


async def translation(running: Running, tls: Tls | None, timeout: float = 60) -> str:
    async with AsyncClient(running.address, timeout=timeout, tls=tls) as client:
        batch = await client.translate([TEXT], source="en", target="de")
        return batch.translations[0].text


async def test_all_ports_speak_tls_and_plain_text_gets_nowhere(
    folder: CertificateFolder, tokenizer: Tokenizer
) -> None:
    async with secure(folder, tokenizer) as running:
        tls = Tls(str(folder.ca))
        assert await translation(running, tls) == TEXT
        assert await asyncio.to_thread(problem, running.address, "", 5.0, tls) is None
        server = running.server
        for port in (server.http_port, server.metrics_port):
            version, _ = await handshake(port, trusting(folder))
            assert version == "TLSv1.3"
        for kind in ("https", "http"):
            url = f"{kind}://127.0.0.1:{server.metrics_port}/readyz"
            got = await asyncio.to_thread(
                subprocess.run,
                ["curl", "-sS", "--cacert", str(folder.ca), url],
                capture_output=True,
            )
            assert (got.stdout == b"ok\n") == (kind == "https")
        error = await error_of(
            running.client.translate([TEXT], source="en", target="de", timeout=1)
        )
        assert error.code.name in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
        stranger = CertificateFolder.made(folder.path / "stranger")  # an authority of its own
        with pytest.raises(TranslationError):
            await translation(running, Tls(str(stranger.ca)), timeout=1)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2])
async def test_versions_below_1_2_are_refused(
    folder: CertificateFolder, tokenizer: Tokenizer, version: ssl.TLSVersion
) -> None:
    context = trusting(folder)
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    async with secure(folder, tokenizer) as running:
        server = running.server
        for port in (server.port, server.http_port, server.metrics_port):
            if version is ssl.TLSVersion.TLSv1_2:
                assert (await handshake(port, context))[0] == "TLSv1.2"
            else:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await handshake(port, context)


async def test_mutual_tls_asks_clients_but_not_probes(
    folder: CertificateFolder, tokenizer: Tokenizer
) -> None:
    async with secure(folder, tokenizer, mutual=True) as running:
        own, none = folder.client(), Tls(str(folder.ca))
        assert await translation(running, own) == TEXT
        with pytest.raises(TranslationError):
            await translation(running, none, timeout=1)
        url = f"https://127.0.0.1:{running.server.http_port}/v1/models"
        with_own = ("--cert", str(own.cert), "--key", str(own.key))
        for extra, succeeds in ((with_own, True), ((), False)):
            command = ["curl", "-sS", "--cacert", str(folder.ca), *extra, url]
            got = await asyncio.to_thread(subprocess.run, command, capture_output=True)
            assert (b'"models"' in got.stdout) == succeeds == (got.returncode == 0)
        await handshake(running.server.metrics_port, trusting(folder))


async def test_a_new_certificate_serves_and_no_call_fails(
    folder: CertificateFolder, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "_CHECK_SECONDS", 0.0)
    async with secure(folder, tokenizer) as running:
        tls = Tls(str(folder.ca))
        server = running.server
        ports = (server.port, server.http_port, server.metrics_port)
        async with AsyncClient(running.address, timeout=60, tls=tls) as old:
            for _ in range(3):
                serial = folder.issue()
                for port in ports:
                    assert (await handshake(port, trusting(folder)))[1] == serial
                batches = await asyncio.gather(
                    *(old.translate([TEXT], source="en", target="de") for _ in range(8))
                )
                assert {batch.translations[0].text for batch in batches} == {TEXT}
                assert await translation(running, tls) == TEXT
            folder.replace(certificate=b"-----BEGIN CERTIFICATE-----\nbroken")
            for port in ports:
                assert (await handshake(port, trusting(folder)))[1] == serial
            assert running.metric("dragoman_tls_last_reload_successful") == 0
            assert running.metric("dragoman_requests_total", method="Translate", code="OK") == 27


async def test_new_authorities_of_clients_hold_at_the_next_handshake(
    folder: CertificateFolder, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "_CHECK_SECONDS", 0.0)
    stranger = CertificateFolder.made(folder.path / "stranger")
    server_ca = folder.path / "server-ca.pem"
    server_ca.write_bytes(folder.ca.read_bytes())
    theirs = stranger.client()
    old, new = folder.client(), Tls(str(server_ca), theirs.cert, theirs.key)
    old = Tls(str(server_ca), old.cert, old.key)
    async with secure(folder, tokenizer, mutual=True) as running:
        url = f"https://127.0.0.1:{running.server.http_port}/v1/models"

        async def comes_in(tls: Tls, timeout: float) -> tuple[bool, bool]:
            """Whether a client with its certificate can call gRPC, within seconds, and HTTP."""
            files = ("--cacert", tls.ca, "--cert", tls.cert, "--key", tls.key)
            got = await asyncio.to_thread(
                subprocess.run, ["curl", "-sS", *map(str, files), url], capture_output=True
            )
            try:
                await translation(running, tls, timeout)
            except TranslationError:
                return False, got.returncode == 0
            return True, got.returncode == 0

        assert await comes_in(old, 60) == (True, True)
        assert await comes_in(new, 2) == (False, False)
        folder.ca.write_bytes(stranger.ca.read_bytes())
        assert await comes_in(new, 60) == (True, True)
        assert await comes_in(old, 2) == (False, False)


async def test_connections_without_a_handshake_leave_nothing(
    folder: CertificateFolder, tokenizer: Tokenizer
) -> None:
    async with secure(folder, tokenizer) as running:
        for port in (running.server.port, running.server.http_port, running.server.metrics_port):
            for data in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01garbage" * 20):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(data)
                writer.write_eof()
                with contextlib.suppress(ConnectionError):
                    async with asyncio.timeout(60):
                        await reader.read()
                writer.close()
        assert await translation(running, Tls(str(folder.ca))) == TEXT


async def test_commands_speak_tls(folder: CertificateFolder, tokenizer: Tokenizer) -> None:
    async with secure(folder, tokenizer, mutual=True) as running:
        own = folder.client()
        options = ("--ca", own.ca, "--cert", own.cert, "--key", own.key, "--server-name", NAME)

        async def run(command: str, *arguments: str | Path) -> tuple[int, str]:
            status, output, errors = await done(command, "--server", running.address, *arguments)
            return status, output or errors

        assert await run("translate", *options, TEXT) == (0, f"{TEXT}\n")
        status, output = await run("models", *options)
        assert status == 0
        assert "fake" in output
        assert await run("languages", "--ca", "/nowhere") == (
            2,
            "dragoman: --tls: ca: /nowhere: No such file or directory\n",
        )
        status, output = await run("translate", "--cert", own.cert, TEXT)
        assert status == 2
        assert "belong together" in output


@contextlib.contextmanager
def grpc_server(folder: CertificateFolder | None, *, mutual: bool = False) -> Iterator[str]:
    """The address of a server that gets no calls; its certificate may be invalid."""
    server = grpc.server(ThreadPoolExecutor(1))
    if folder is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        pair = folder.key.read_bytes(), folder.certificate.read_bytes()
        ca = folder.ca.read_bytes() if mutual else None
        credentials = grpc.ssl_server_credentials([pair], ca, require_client_auth=mutual)
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


async def test_an_error_says_what_is_wrong_with_tls(folder: CertificateFolder) -> None:
    stranger = CertificateFolder.made(folder.path / "stranger")
    expired = CertificateFolder.made(folder.path / "expired")
    expired.issue(expires=datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1))
    ca, theirs = str(folder.ca), stranger.client()
    own = folder.client()
    wanted = "closed the connection; does it need TLS"
    with (
        grpc_server(None) as plain,
        grpc_server(folder) as secured,
        grpc_server(folder, mutual=True) as mutual,
        grpc_server(expired) as outdated,
    ):
        cases = [
            (plain, Tls(ca), "speaks plain text", "without TLS"),
            (secured, None, wanted, "--tls"),
            (mutual, None, wanted, "--cert and --key"),
            (mutual, Tls(ca), wanted, "--cert and --key"),
            (mutual, Tls(ca, theirs.cert, theirs.key), wanted, "an authority that it trusts"),
            (secured, Tls(str(stranger.ca)), "is not trusted", "--ca"),
            (secured, Tls(ca, server_name="elsewhere.test"), "another name", "--server-name"),
            (outdated, Tls(str(expired.ca)), "has expired", "replace it"),
        ]

        async def error(address: str, tls: Tls | None) -> TranslationError:
            async with AsyncClient(address, timeout=60, tls=tls) as client:
                return await error_of(client.translate([TEXT]))

        errors = await asyncio.gather(*(error(address, tls) for address, tls, _, _ in cases))
        for (address, _, cause, remedy), found in zip(cases, errors, strict=True):
            said = describe(address, found)
            assert cause in found.message
            assert cause in said
            assert remedy in said
            assert "--" not in found.message  # for those who write Python
        reached = await error(mutual, own)
        assert reached.code is grpc.StatusCode.UNIMPLEMENTED
        for tls, words in ((None, wanted), (Tls(ca), "certificate (--cert")):
            found_by_health = await asyncio.to_thread(problem, mutual, "", 30.0, tls)
            assert words in str(found_by_health)
            with pytest.raises(ServerError, match=re.escape(words)):
                await asyncio.to_thread(find_server, LoadPlan(mutual, rate=1.0, tls=tls))
    gone = await error(plain, None)
    assert "TLS" not in gone.message
    assert "accepts calls" in describe(plain, gone)


async def test_the_synchronous_client_speaks_tls(
    folder: CertificateFolder, tokenizer: Tokenizer
) -> None:
    async with secure(folder, tokenizer, mutual=True) as running:

        def call() -> str:
            with Client(running.address, timeout=60, tls=folder.client()) as client:
                return client.translate([TEXT], source="en", target="de").translations[0].text

        assert await asyncio.to_thread(call) == TEXT


async def test_the_metrics_page_shows_the_expiry(
    folder: CertificateFolder, tokenizer: Tokenizer
) -> None:
    async with running_fake(fake_runner(tokenizer), tokenizer) as plain:
        assert "dragoman_tls_certificate_expiry_timestamp_seconds 0.0" in await page(
            f"http://127.0.0.1:{plain.server.metrics_port}/metrics"
        )
    async with secure(folder, tokenizer) as running:
        assert running.metric("dragoman_tls_certificate_expiry_timestamp_seconds") > 0

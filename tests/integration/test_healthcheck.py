"""`python -m service.ports.healthcheck`, which containers run to check their server."""

import asyncio
import sys
from pathlib import Path

import pytest

from model.bundle.tokenizer import Tokenizer
from service.fronts.dragoman.servicer import SERVICE
from service.ports.healthcheck import default_server, problem
from tests.certificates import CertificateFolder
from tests.integration.servers import command_environment, fake_runner, running_fake


async def ask(*arguments: str, **environment: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "service.ports.healthcheck", "--timeout", "60", *arguments),
        env={**command_environment(), **environment},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    return process.returncode, errors.decode()


async def test_a_server_that_serves_is_well(tokenizer: Tokenizer) -> None:
    async with running_fake(fake_runner(tokenizer), tokenizer) as running:
        assert await ask(DRAGOMAN_PORT=str(running.server.port)) == (0, "")
        assert await ask("--server", running.address, "--service", SERVICE) == (0, "")
        status, errors = await ask("--server", running.address, "--service", "no.Service")
        assert status == 1
        assert "NOT_FOUND" in errors


async def test_a_server_that_drains_or_is_gone_is_not(tokenizer: Tokenizer) -> None:
    async with running_fake(fake_runner(tokenizer), tokenizer) as running:
        address = running.address
        assert await asyncio.to_thread(problem, address, timeout=60.0) is None
    found = await asyncio.to_thread(problem, address, timeout=60.0)
    assert found is not None
    assert "UNAVAILABLE" in found
    assert address in found


async def test_a_server_with_tls_is_asked_without_a_clients_certificate(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    folder = CertificateFolder.made(tmp_path / "certificates")
    settings = folder.settings(mutual=True)
    environment = {f"DRAGOMAN_{name.upper()}": value for name, value in settings.items()}
    async with running_fake(fake_runner(tokenizer), tokenizer, **settings) as running:
        environment["DRAGOMAN_METRICS_PORT"] = str(running.server.metrics_port)
        assert await ask(**environment) == (0, "")
        running.server.probes.set_not_ready("draining")
        status, errors = await ask(**environment)
        assert status == 1
        assert "draining" in errors
    status, errors = await ask(**environment)
    assert status == 1
    assert "/readyz" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("host", "server"),
    [("0.0.0.0", "127.0.0.1:7"), ("::", "[::1]:7"), ("10.0.0.1", "10.0.0.1:7")],
)
def test_where_it_asks(monkeypatch: pytest.MonkeyPatch, host: str, server: str) -> None:
    monkeypatch.setenv("DRAGOMAN_HOST", host)
    monkeypatch.setenv("DRAGOMAN_PORT", "7")
    assert default_server() == server

"""API keys in the client and the commands, and tokens beside keys."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from dragoman.client import AsyncClient, TranslationError
from model.bundle.tokenizer import Tokenizer
from service.errors import StartupError
from tests.fake_runner import FakeRunner
from tests.integration.http_client import post
from tests.integration.keyed import TEXT, KeyFile, by_bearer, failure, request, serving
from tests.integration.servers import done, running_fake


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    made = KeyFile(tmp_path / "keys.jsonl")
    made.add("somebody-else")
    return made


async def test_the_key_is_the_client_and_never_in_the_log(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    one, other = file.add("one", tenant="acme"), file.add("other")
    async with serving(runner, tokenizer, file) as (server, stub):
        for key in (one, other):
            metadata = (*by_bearer(key), ("x-client-id", "somebody"))
            await stub.Translate(request(), metadata=metadata)
        await post(server, f"/v1/translate?key={one}", {"contents": [TEXT]})
        lines = [vars(line) for line in caplog.records if line.name == "dragoman.access"]
        assert [line["client"] for line in lines] == ["tenant:acme", "key:other", "tenant:acme"]
        assert [line["key"] for line in lines] == ["one", "other", "one"]
        assert "drg_" not in caplog.text
        assert not any("drg_" in str(line) for line in lines)
        assert "drg_" not in await server.scrape()


async def test_headers_of_megabytes_are_refused(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile
) -> None:
    key = file.add("me")
    async with serving(runner, tokenizer, file) as (server, stub):
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Translate(request(), metadata=by_bearer("x" * 2**20))
        answer = await post(server, "/v1/translate", {"contents": [TEXT]}, x_api_key="x" * 30_000)
        assert answer.status == 401
        over = await post(server, f"/v1/translate?key={'x' * 30_000}", {"contents": [TEXT]})
        assert over.status == 401
        assert await stub.Translate(request(), metadata=by_bearer(key))


async def test_the_client_and_the_commands_send_a_key(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile
) -> None:
    key = file.add("me")
    async with serving(runner, tokenizer, file) as (server, _):
        async with AsyncClient(server.address, api_key=key) as client:
            assert (await client.translate([TEXT])).translations[0].text
        async with AsyncClient(server.address) as client:
            with pytest.raises(TranslationError, match="API key"):
                await client.translate([TEXT])
        for command in (["translate", TEXT], ["models"], ["languages"], ["detect", TEXT]):
            status, output = await command_line(*command, "--server", server.address, key=key)
            assert status == 0, output
            status, output = await command_line(*command, "--server", server.address)
            assert status == 1
            assert "DRAGOMAN_API_KEY" in output


async def test_keys_are_made_listed_and_revoked_by_commands(
    runner: FakeRunner, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    path = tmp_path / "keys.jsonl"
    keys_of = ("--keys", str(path))
    limits = ("--tenant", "acme", "--characters-per-day", "100", "--expires", "2099-01-01")
    status, key = await command_line("keys", "add", "me", *keys_of, *limits)
    assert status == 0, key
    key = key.strip()
    assert path.stat().st_mode & 0o777 == 0o600
    assert key not in path.read_text()
    status, output = await command_line("keys", "add", "me", *keys_of)
    assert (status, "already" in output) == (1, True)
    status, output = await command_line("keys", "add", "you", *keys_of, "--call", "Transalte")
    assert (status, "Transalte" in output) == (2, True)
    status, output = await command_line("keys", "list", *keys_of)
    assert "acme" in output
    assert "100" in output
    status, output = await command_line("keys", "list", "--json", *keys_of)
    assert "sha256" not in output
    made = KeyFile(path)
    async with serving(runner, tokenizer, made) as (server, stub):
        assert await stub.Translate(request(), metadata=by_bearer(key))
        status, output = await command_line("keys", "revoke", "me", *keys_of)
        assert status == 0, output
        async with asyncio.timeout(60):  # the server looks by itself
            while server.metric("dragoman_keys"):
                await asyncio.sleep(0.05)
        code, _, _ = await failure(stub.Translate(request(), metadata=by_bearer(key)))
        assert code is grpc.StatusCode.UNAUTHENTICATED
    status, output = await command_line("keys", "revoke", "me", *keys_of)
    assert status == 1


async def test_tokens_and_keys_side_by_side(
    runner: FakeRunner, tokenizer: Tokenizer, file: KeyFile, tmp_path: Path
) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    public = ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [public]}))
    claims = {
        "iss": "https://issuer", "aud": "dragoman", "sub": "alice", "exp": time.time() + 600,
        "dragoman": {"tenant": "acme", "characters_per_day": len(TEXT)},
    }  # fmt: skip
    token = by_bearer(jwt.encode(claims, private, "ES256"))
    key = by_bearer(file.add("me"))
    settings = {"jwt_issuer": "https://issuer", "jwt_audience": "dragoman"}
    settings["jwks_url"] = path.as_uri()
    async with serving(runner, tokenizer, file, **settings) as (server, stub):
        assert await stub.Translate(request(), metadata=key)
        assert await stub.Translate(request(), metadata=token)
        code, _, _ = await failure(stub.Translate(request(), metadata=token))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.metric("dragoman_key_characters_total", key="jwt:alice") == len(TEXT)
    del settings["jwt_audience"]
    with pytest.raises(StartupError, match="--jwt-audience"):
        async with running_fake(runner, tokenizer, **settings):
            pass


async def command_line(*arguments: str, key: str = "") -> tuple[int, str]:
    """Status and output of a command, with a key in its environment."""
    status, output, errors = await done(*arguments, DRAGOMAN_API_KEY=key)
    return status, output + errors

"""TLS with clients that nobody here wrote: curl, openssl, and gRPC's for Node."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dragoman.tls import Tls
from tests.certificates import NAME, CertificateFolder
from tests.clients.test_examples import PROTO, project, run
from tests.factories import tiny_bundle
from tests.integration.servers import NO_HURRY, server_process

pytestmark = pytest.mark.clients

__all__ = ["project"]  # a fixture

BODY = '{"contents": ["A dog is running."]}'
NODE = """
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import grpc from "@grpc/grpc-js";
import { loadFileDescriptorSetFromBuffer } from "@grpc/proto-loader";

const contract = loadFileDescriptorSetFromBuffer(readFileSync("dragoman.binpb"), {});
const { TranslationService } = grpc.loadPackageDefinition(contract).dragoman.v1;
const [address, name, ca, key, cert] = process.argv.slice(2);
const files = [ca, key, cert].map((file) => (file ? readFileSync(file) : null));
const client = new TranslationService(address, grpc.credentials.createSsl(...files), {
  "grpc.ssl_target_name_override": name,
});
const translate = promisify(client.translate.bind(client));
const request = { contents: ["A dog is running."] };
const code = await translate(request, { deadline: Date.now() + 10_000 })
  .then(() => grpc.status.OK, (error) => error.code);
console.log(grpc.status[code]);
client.close();
"""


@dataclass(frozen=True)
class Secure:
    """A server that speaks TLS."""

    grpc_port: str
    http_port: str
    metrics_port: str
    folder: CertificateFolder
    own: Tls


@contextlib.asynccontextmanager
async def serving(path: Path, *, mutual: bool) -> AsyncIterator[Secure]:
    folder = CertificateFolder.made(path / "certificates")
    bundle = tiny_bundle(path / "tiny", name="tiny")
    options: list[str] = []
    for name, file in folder.settings(mutual=mutual).items():
        options += [f"--{name.replace('_', '-')}", file]
    arguments = ("--http-port", "0", *options, *NO_HURRY)
    async with server_process("--model", bundle.path, *arguments) as running:
        [line] = [entry for entry in running.log if entry["message"] == "serving"]
        addresses = [str(line[name]) for name in ("address", "http", "metrics")]
        grpc, http, metrics = (re.findall(r":(\d+)", address)[-1] for address in addresses)
        yield Secure(grpc, http, metrics, folder, folder.client())


@pytest.fixture(params=[False, True], ids=["tls", "mutual"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Secure]:
    async with serving(tmp_path, mutual=request.param) as made:
        yield made


def done(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        errors="replace",  # gRPC's first frames
        timeout=60,
        input="",
    )


def is_mutual(request: pytest.FixtureRequest) -> bool:
    return "mutual" in request.node.name


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_curl(server: Secure, request: pytest.FixtureRequest, version: str) -> None:
    url = f"https://127.0.0.1:{server.http_port}/v1/translate"
    there = ("--cacert", server.folder.ca)
    only = (f"--tlsv{version}", "--tls-max", version)
    post = ("curl", "-sS", *there, *only, "-H", "content-type: application/json", "-d", BODY, url)
    own = ("--cert", str(server.own.cert), "--key", str(server.own.key))
    answer = done([*post, *own])
    assert len(json.loads(answer.stdout)["translations"]) == 1
    assert (done(post).returncode == 0) != is_mutual(request)
    assert done([*post, *own, "--cacert", "/etc/ssl/certs/ca-certificates.crt"]).returncode == 60


@pytest.mark.parametrize("version", ["tls1_1", "tls1_2", "tls1_3"])
def test_openssl(server: Secure, version: str) -> None:
    for port in (server.grpc_port, server.http_port, server.metrics_port):
        command = (
            *("openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", server.folder.ca),
            *(f"-{version}", "-verify_hostname", NAME, "-alpn", "h2"),
            *("-cert", str(server.own.cert), "-key", str(server.own.key)),
        )
        found = done(command)
        if version == "tls1_1":
            assert found.returncode != 0
        else:
            assert "Verify return code: 0 (ok)" in found.stdout
            assert re.search(rf"TLSv1\.{version[-1]}", found.stdout)
            assert ("ALPN protocol: h2" in found.stdout) == (port == server.grpc_port)


def test_node(server: Secure, request: pytest.FixtureRequest, project: Path) -> None:
    (project / "tls.mjs").write_text(NODE, encoding="utf-8")
    (project / "dragoman.binpb").write_bytes((PROTO / "dragoman.binpb").read_bytes())
    base = ("node", "tls.mjs", f"127.0.0.1:{server.grpc_port}", NAME)
    files = [str(path) for path in (server.folder.ca, server.own.key, server.own.cert)]
    assert run(*base, *files, cwd=project) == "OK\n"
    assert (run(*base, files[0], cwd=project) == "OK\n") != is_mutual(request)

"""API keys from clients that nobody here wrote: curl, and gRPC's for Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.access import keys
from service.access.key_file import write_keys
from tests.clients.test_examples import PROTO, missing, project, run
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
const [address, ...headers] = process.argv.slice(2);
const client = new TranslationService(address, grpc.credentials.createInsecure());
const translate = promisify(client.translate.bind(client));
for (const header of headers) {
  const metadata = new grpc.Metadata();
  const [name, value] = header.split(": ");
  if (name) metadata.set(name, value);
  const request = { contents: ["A dog is running."] };
  const code = await translate(request, metadata, { deadline: Date.now() + 30_000 })
    .then(() => grpc.status.OK, (error) => error.code);
  console.log(grpc.status[code]);
}
client.close();
"""


@dataclass(frozen=True)
class Keyed:
    """A server with keys: one for everything, one for nothing, one that is used up."""

    address: str
    url: str
    key: str
    useless: str
    used_up: str


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Keyed]:
    made = [
        keys.new_key(keys.principal_of(values))
        for values in (
            {"name": "all"},
            {"name": "nothing", "calls": []},
            {"name": "used-up", "characters_per_month": 0},
        )
    ]
    path = tmp_path / "keys.jsonl"
    write_keys(path, {stored.id: stored for _, stored in made})
    bundle = tiny_bundle(tmp_path / "tiny", name="tiny")
    arguments = ("--model", bundle.path, "--keys", path, "--http-port", "0", *NO_HURRY)
    async with server_process(*arguments) as running:
        url = next(entry["http"] for entry in running.log if entry["message"] == "serving")
        yield Keyed(running.address, url, *(key for key, _ in made))


def curl(server: Keyed, *headers: str, parameters: str = "") -> tuple[int, dict[str, str]]:
    """The status and the headers of an answer."""
    if shutil.which("curl") is None:
        missing("curl is not installed")
    options = [each for header in headers for each in ("--header", header)]
    done = subprocess.run(
        [
            *("curl", "--silent", "--show-error", "--include", "--max-time", "30"),
            *("--header", "content-type: application/json", "--data", BODY, *options),
            f"{server.url}v1/translate{parameters}",
        ],
        capture_output=True,
        check=True,
        text=True,
    )
    first, *lines = done.stdout.partition("\n\n")[0].splitlines()
    return int(first.split()[1]), dict(
        line.lower().split(": ", 1) for line in lines if ": " in line
    )


def headers_of(key: str) -> list[str]:
    return [
        f"authorization: Bearer {key}",
        f"Authorization: DeepL-Auth-Key {key}",
        f"x-api-key: {key}",
        f"X-Goog-Api-Key: {key}",
    ]


def test_curl(server: Keyed) -> None:
    for header in headers_of(server.key):
        assert curl(server, header)[0] == 200, header
    assert curl(server, parameters=f"?key={server.key}")[0] == 200
    for header in ["accept: */*", *headers_of("wrong")]:
        status, found = curl(server, header)
        assert (status, found["www-authenticate"]) == (401, "bearer"), header
    assert curl(server, headers_of(server.useless)[0])[0] == 403
    status, found = curl(server, headers_of(server.used_up)[0])
    assert status == 429
    assert int(found["retry-after"]) > 0


def test_grpc_for_node(project: Path, server: Keyed) -> None:
    shutil.copy(PROTO / "dragoman.binpb", project)
    (project / "keys.mjs").write_text(NODE)
    wanted = {
        **dict.fromkeys(headers_of(server.key), "OK"),
        **dict.fromkeys(["", *headers_of("wrong")], "UNAUTHENTICATED"),
        headers_of(server.useless)[0]: "PERMISSION_DENIED",
        headers_of(server.used_up)[0]: "RESOURCE_EXHAUSTED",
    }
    output = run("node", "keys.mjs", server.address, *wanted, cwd=project)
    assert output.split() == list(wanted.values()), json.dumps(output)

"""The examples of the documents that call a server give the documented output."""

import asyncio
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from tests.integration.servers import running_bundle

ROOT = Path(__file__).parents[2]
PAGES = (
    *("README.md", "proto/README.md", "proto/SEARCH.md", "service/MARKUP.md"),
    *("service/GLOSSARIES.md", "proto/CLIENTS.md", "service/MEMORY.md"),
)
TEXTS = [(ROOT / page).read_text(encoding="utf-8") for page in PAGES]
SERVER = "127.0.0.1:50051"


EXAMPLES = re.findall(r"^```python\n(.*?)^```", "".join(TEXTS), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("example", "printed"),
    [
        (EXAMPLES[0], r"^\d+ tokens in \d+\.\d+ s$"),
        (EXAMPLES[1], r"\A.+\n.+\n"),
        (EXAMPLES[2], r"^de with \w+$"),
        (EXAMPLES[3], r"^-\d+\.\d+ .*Token\(piece='</s>', log_probability=-\d"),
        (EXAMPLES[4], r"^-\d+\.\d\d nats a token\n-\d+\.\d\d nats a token\n\w+ \w+"),
        (EXAMPLES[5], r"^(?:check|fine) A dog is running\.$"),
        (EXAMPLES[6], r"\A(cross [01] \S+ looks at \S+\n)+\Z"),
        (EXAMPLES[7], r"^<p>.*<code>door</code>.*</p>$"),
        (EXAMPLES[8], r"^settings \d of 1$"),
        (EXAMPLES[9], r"^A dog runs\. A dog runs\. 1\.0$"),
    ],
    ids=[
        *("translate", "the client's page", "languages", "search", "score and align"),
        *("confidence", "attention", "markup", "glossary", "memory"),
    ],
)
async def test_the_python_examples_run(
    bundle_path: Path, tmp_path: Path, example: str, printed: str
) -> None:
    assert SERVER in example
    async with running_bundle(bundle_path, memory_store=str(tmp_path / "memories.db")) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", example.replace(SERVER, server.address)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert re.search(printed, output.decode(), re.MULTILINE), output.decode()


def test_every_python_example_is_run() -> None:
    assert len(EXAMPLES) == 10


async def test_the_grpcurl_examples_are_answered(bundle_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", "".join(TEXTS), re.MULTILINE | re.DOTALL)
    calls = [
        shlex.split(call)
        for block in blocks
        for call in re.findall(r"^grpcurl (.*?)(?=^grpcurl |\Z)", block, re.MULTILINE | re.DOTALL)
    ]
    assert len(calls) == 4
    async with running_bundle(bundle_path) as server:
        answers = [await asyncio.to_thread(as_grpcurl, call, server.address) for call in calls]
    translated, health, *others = answers
    assert len(translated["translations"]) == 2
    assert health == {"status": "SERVING"}
    assert [len(other["translations"]) for other in others] == [1, 1]


def as_grpcurl(arguments: list[str], address: str) -> dict[str, Any]:
    """Do the same as grpcurl with these arguments: get the contract, send JSON, return JSON."""
    body = json.loads(arguments[arguments.index("-d") + 1]) if "-d" in arguments else {}
    assert arguments[0] == "-plaintext"
    assert arguments[-2] == SERVER
    service, method = arguments[-1].split("/")
    with grpc.insecure_channel(address) as channel:
        if "-protoset" in arguments:
            pool = descriptor_pool.DescriptorPool()
            protoset = ROOT / arguments[arguments.index("-protoset") + 1]
            for file in FileDescriptorSet.FromString(protoset.read_bytes()).file:
                pool.Add(file)
        else:
            pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        described = pool.FindServiceByName(service).methods_by_name[method]
        request = json_format.ParseDict(
            body, message_factory.GetMessageClass(described.input_type)()
        )
        response = message_factory.GetMessageClass(described.output_type)()
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            f"/{service}/{method}"
        )
        response.ParseFromString(call(request.SerializeToString(), timeout=60))
        return json_format.MessageToDict(response)

"""The programs of proto/CLIENTS.md in other languages do what they say, against a real server.

They need Node, npm and its registry: `make test-clients`, not `make test`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman import Client, StreamEnd
from tests.containers.static.envoy_process import envoy
from tests.factories import tiny_bundle
from tests.integration.servers import NO_HURRY, ServerProcess, server_process

pytestmark = pytest.mark.clients

HERE = Path(__file__).parent
PROTO = HERE.parents[1] / "proto"
PAGE = (PROTO / "CLIENTS.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


NODE, BROWSER = blocks("js")
COMMANDS = "".join(blocks("sh")).replace("\\\n", " ").splitlines()


def command(program: str) -> list[list[str]]:
    """The arguments of each call of `program` on the page."""
    return [words[1:] for words in map(shlex.split, COMMANDS) if words[0] == program]


def missing(why: str) -> None:
    """Skip, or fail where everything has to be there."""
    if os.environ.get("DRAGOMAN_REQUIRE_TOOLS"):
        pytest.fail(why)
    pytest.skip(why)


def run(*arguments: str | Path, cwd: Path) -> str:
    """Run a command; returns its standard output, or fails with both streams if it fails."""
    done = subprocess.run(
        [str(argument) for argument in arguments], cwd=cwd, capture_output=True, check=False
    )
    assert done.returncode == 0, f"{arguments[0]}: {(done.stdout + done.stderr).decode()}"
    return done.stdout.decode()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages that the page installs, at locked versions."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            missing(f"{program} is not installed")
    folder = tmp_path_factory.mktemp("clients")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    done = subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        missing(f"npm can't install the packages: {done.stderr}")
    return folder


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    """A server of a random tiny model."""
    bundle = tiny_bundle(tmp_path / "tiny", name="tiny")
    async with server_process("--model", bundle.path, *NO_HURRY) as running:
        yield running


def expected(address: str) -> list[str]:
    """The expected output of either program, by our own client."""
    with Client(address) as client:
        batch = client.translate(["A dog is running.", "Two men are playing chess."])
        *pieces, end = client.stream("A dog is running. It is brown.")
    assert isinstance(end, StreamEnd)
    texts = [translation.text for translation in batch.translations]
    return [*texts, "".join(map(str, pieces)), f"{end.num_target_tokens} tokens"]


def test_the_page_installs_what_is_locked() -> None:
    installed = {name for install in command("npm") for name in install[1:]}
    assert installed == set(json.loads((HERE / "package.json").read_text())["dependencies"])


def test_from_node(project: Path, server: ServerProcess) -> None:
    shutil.copy(PROTO / "dragoman.binpb", project)
    assert NODE.count("127.0.0.1:50051") == 1
    (project / "node.mjs").write_text(NODE.replace("127.0.0.1:50051", server.address))
    output = run("node", "node.mjs", cwd=project)
    assert output == "\n".join([*expected(server.address), ""])


def test_from_a_browser(project: Path, server: ServerProcess, tmp_path: Path) -> None:
    (arguments,) = command("protoc")
    source = project / "src"
    (source / "gen").mkdir(parents=True)
    (project / "proto").symlink_to(PROTO)
    run(sys.executable, "-m", "grpc_tools.protoc", *arguments, cwd=project)
    shutil.copy(HERE / "as_browser.mjs", project)
    port = int(server.address.rpartition(":")[2])
    with envoy(tmp_path, [port]) as front:
        assert BROWSER.count("127.0.0.1:8080") == 1
        (source / "page.js").write_text(BROWSER.replace("127.0.0.1:8080", front.address))
        output = run("node", "--import", "./as_browser.mjs", "src/page.js", cwd=project)
    assert output == "\n".join([*expected(server.address), "contents", ""])

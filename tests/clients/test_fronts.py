"""Clients of other services, as their makers wrote them, each in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import Client
from tests.clients.test_examples import missing, run
from tests.factories import tiny_bundle
from tests.integration.servers import NO_HURRY, ServerProcess, server_process

pytestmark = pytest.mark.clients

HERE = Path(__file__).parent
TEXTS = ["A dog is running.", "Two men are playing chess."]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    """A server of a random tiny model, English to German, with HTTP."""
    bundle = tiny_bundle(tmp_path / "tiny", name="tiny")
    (tmp_path / "house.en-de.tsv").write_text("dog\tHündchen\n")
    options = ("--http-port", "0", "--glossary-dir", tmp_path, *NO_HURRY)
    async with server_process("--model", bundle.path, *options) as running:
        yield running


def url(server: ServerProcess) -> str:
    (line,) = [entry for entry in server.log if entry["message"] == "serving"]
    return str(line["http"]).removesuffix("/")


def ours(server: ServerProcess) -> list[str]:
    """The translations as our own client gets them."""
    with Client(server.address) as client:
        return [each.text for each in client.translate(TEXTS).translations]


def check(found: dict[str, Any], server: ServerProcess) -> None:
    expected = {
        "texts": ours(server),
        "detected": "en",
        "sources": ["en"],
        "targets": ["de"],
        "languages": ["de", "en"],
        "names": ["German", "English"],
        "used": 0,
    }
    error = found.pop("error", "ja")
    assert found == {name: expected[name] for name in found}
    assert "ja" in error.lower()


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        ("libretranslate.py", ""),
        ("deepl_v2.py", ""),
        ("google_v2.py", ""),
        ("google_v3.py", "rest"),
        ("google_v3.py", "grpc"),
    ],
)
def test_for_python(server: ServerProcess, tmp_path: Path, program: str, kind: str) -> None:
    address = server.address if kind == "grpc" else url(server)
    arguments = [kind, address] if kind else [address]
    output = run(sys.executable, HERE / "programs" / program, *arguments, cwd=tmp_path)
    check(json.loads(output), server)


def test_for_node(server: ServerProcess, tmp_path: Path) -> None:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            missing(f"{program} is not installed")
    for file in (HERE / "deepl" / "package.json", HERE / "deepl" / "package-lock.json"):
        shutil.copy(file, tmp_path)
    done = subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        missing(f"npm can't install the packages: {done.stderr}")
    shutil.copy(HERE / "programs" / "deepl.mjs", tmp_path)
    check(json.loads(run("node", "deepl.mjs", url(server), cwd=tmp_path)), server)


def test_curl(server: ServerProcess, tmp_path: Path) -> None:
    form = ["-d", f"q={TEXTS[0]}", "-d", "source=auto", "-d", "target=de"]
    output = run("curl", "-s", f"{url(server)}/translate", *form, cwd=tmp_path)
    assert json.loads(output)["translatedText"] == ours(server)[0]


def test_curl_with_a_file(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("\n\n".join(TEXTS))
    form = ["-F", "file=@notes.txt", "-F", "source=en", "-F", "target=de"]
    output = run("curl", "-s", f"{url(server)}/translate_file", *form, cwd=tmp_path)
    address = json.loads(output)["translatedFileUrl"]
    run("curl", "-sOJ", address, cwd=tmp_path)
    assert (tmp_path / "notes_de.txt").read_bytes().decode() == "\n\n".join(ours(server))

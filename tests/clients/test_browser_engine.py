"""Firefox's engine, under Node, translates with the files that `dragoman export` writes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from export.students.reader import read_student
from export.students.writer import write_student
from model.evaluation.search import greedy_search
from tests.clients.test_examples import HERE, project
from tests.parity.test_export_student import checkpoint, sentences, tokenizer

__all__ = ["project", "tokenizer"]  # fixtures

pytestmark = pytest.mark.clients
ENGINE = Path("node_modules/@browsermt/bergamot-translator")
FILES = {"model": "model.ende.intgemm.alphas.bin", "vocab": "vocab.ende.spm"}


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def served(directory: Path) -> Iterator[str]:
    """The address of a file server."""
    handler = functools.partial(Quiet, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def write_registry(directory: Path, address: str) -> str:
    """The engine's list of models; returns its address."""
    described = {}
    for part, name in FILES.items():
        content = (directory / name).read_bytes()
        described[part] = {
            "name": f"{address}/{name}",
            "size": len(content),
            "expectedSha256Hash": hashlib.sha256(content).hexdigest(),
        }
    (directory / "registry.json").write_text(json.dumps({"ende": described}))
    return f"{address}/registry.json"


def ours(directory: Path, texts: list[str]) -> list[str]:
    student = read_student(directory, None)
    eos_id, found = student.config.eos_id, []
    for text in texts:
        source = torch.tensor([[*student.tokenizer.encode(text), eos_id]])
        token_ids = greedy_search(student.model, source)[0].token_ids
        found.append(student.tokenizer.target.decode([i for i in token_ids if i != eos_id]))
    return found


def test_the_engine_of_firefox_translates_alike(
    tmp_path: Path, project: Path, tokenizer: Any
) -> None:
    checkpoint(tmp_path / "ours", tokenizer)
    texts = [" ".join(text.split()[:2]).rstrip(".?!") for text in sentences(12)]
    write_student(tmp_path / "ours", tmp_path / "student", "int8", texts)
    shutil.copy(HERE / "browser_engine.mjs", project)
    # The worker is CommonJS, which the package.json does not say.
    (project / ENGINE / "worker" / "package.json").write_text('{"type": "commonjs"}')
    with served(tmp_path / "student") as address:
        registry = write_registry(tmp_path / "student", address)
        done = subprocess.run(
            ["node", "browser_engine.mjs", registry],
            cwd=project,
            input="\n".join(texts),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout.splitlines()[-1])
    # It ends a text at twice the length of the source. Random weights have many near ties, which
    # its 8-bit activations decide otherwise.
    alike = [
        len(text) > 2 and mine.startswith(text)
        for mine, text in zip(ours(tmp_path / "student", texts), theirs, strict=True)
    ]
    assert sum(alike) >= len(texts) / 2, (theirs, alike)

"""Models are pulled from a mirror, proven, and served by their pairs."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from model.bundle.bundle import Bundle
from tests.mirrors import MODEL, entry_of, write_mirror
from tests.students import random_student, student_config, write_student

TINY = dict(d_model=64, ffn_dim=96, num_encoder_layers=2)


@functools.cache
def student(folder: Path, seed: int = 0) -> dict[str, bytes]:
    """The files of a random student, by "role:name"."""
    write_student(folder, random_student(student_config("student-tiny", **TINY), seed))
    return {
        f"model:{MODEL}": (folder / MODEL).read_bytes(),
        "vocab:vocab.ende.spm": (folder / "vocab.ende.spm").read_bytes(),
        "lexicalShortlist:lex.50.50.ende.s2t.bin": b"\0" * 48,
    }


@pytest.fixture(scope="session")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with models for en-de, two of them, and for de-en."""
    root = tmp_path_factory.mktemp("pull")
    entries = []
    for number, (source, target, kind) in enumerate(
        [("en", "de", "tiny"), ("en", "de", "base-memory"), ("de", "en", "tiny")]
    ):
        files = student(root / f"student{number}", number)
        folder = f"models/{source}-{target}/{kind}_AbC/exported"
        entry = entry_of(files, folder, source=source, target=target, architecture=kind)
        entries.append((entry, files))
    write_mirror(root / "mirror", *entries)
    return root / "mirror"


def pull(store: Path, mirror: Path | str, *arguments: str) -> Result:
    options = ("--models-dir", str(store), "--models-url", str(mirror), "--threads", "1")
    return CliRunner().invoke(app, ["pull", *arguments, *options, "--proof-sentences", "2"])


def test_pulled_from_a_directory(tmp_path: Path, mirror: Path) -> None:
    result = pull(tmp_path, mirror, "en-de", "--type", "tiny")
    assert result.exit_code == 0, result.output
    bundle = Bundle.load(tmp_path / "en-de")
    assert (bundle.name, bundle.version[:5]) == ("en-de", "tiny-")
    entry = json.loads((mirror / "db" / "models.json").read_text())["models"]["en-de"][0]
    model = entry["files"]["model"]
    assert (
        bundle.manifest["provenance"]["imported_from"]
        | {
            "url": model["path"],
            "revision": model["uncompressedHash"],
            "license": "MPL-2.0",
            "type": "tiny",
            "release": "Release",
        }
        == bundle.manifest["provenance"]["imported_from"]
    )
    assert bundle.origin.startswith(f"imported from {model['path']} (Marian student")
    assert "licence MPL-2.0" in bundle.origin
    assert "Serve it: dragoman serve en-de" in result.output

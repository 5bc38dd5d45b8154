"""Pulls from a mirror with models for three pairs, as tests make them."""

from __future__ import annotations

import functools
from pathlib import Path

from typer.testing import CliRunner, Result

from bench.random_student import random_student
from cli.main import app
from tests.mirrors import MODEL, entry_of, write_mirror
from tests.students import VOCAB_SIZE, lexicon, student_config, write_student

TINY = dict(d_model=64, ffn_dim=96, num_encoder_layers=2)


@functools.cache
def student(folder: Path, seed: int = 0) -> dict[str, bytes]:
    """The files of a random student, by "role:name"."""
    write_student(folder, random_student(student_config("student-tiny", **TINY), seed))
    return {
        f"model:{MODEL}": (folder / MODEL).read_bytes(),
        "vocab:vocab.ende.spm": (folder / "vocab.ende.spm").read_bytes(),
        "lexicalShortlist:lex.50.50.ende.s2t.bin": lexicon([[i] for i in range(VOCAB_SIZE)]),
    }


def write_students(root: Path) -> Path:
    """A mirror in a new folder, with models for en-de, two of them, for de-en and for en-fr."""
    entries = []
    for number, (source, target, kind) in enumerate(
        [
            ("en", "de", "tiny"),
            ("en", "de", "base-memory"),
            ("de", "en", "tiny"),
            ("en", "fr", "tiny"),
        ]
    ):
        files = student(root / f"student{number}", number)
        folder = f"models/{source}-{target}/{kind}_AbC/exported"
        entry = entry_of(files, folder, source=source, target=target, architecture=kind)
        entries.append((entry, files))
    write_mirror(root / "mirror", *entries)
    return root / "mirror"


def pull(store: Path, mirror: Path | str, *arguments: str) -> Result:
    """Run the command, with a short proof."""
    options = ("--models-dir", str(store), "--models-url", str(mirror), "--threads", "1")
    return CliRunner().invoke(app, ["pull", *arguments, *options, "--proof-sentences", "2"])


def files(directory: Path) -> set[str]:
    """Names of files below a directory, but for locks."""
    return {path.name for path in directory.rglob("*") if path.is_file()} - {"lock"}

"""An import or an export that can't continue leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from model.bundle.config import preset
from model.bundle.tokenizer import TOKENIZER_FILE, train_tokenizer
from model.network.checkpoint import save_checkpoint
from model.network.transformer import Transformer
from tests.foreign_models import TEXTS
from tests.native_marian import write_native_marian


def started(
    model: Path, output: Path, *arguments: str, before: str = "", command: str = "import"
) -> subprocess.Popen[str]:
    """The command in a process of its own; `before` is a statement that comes first."""
    program = f"import sys; {before}\nfrom cli.main import app; app(sys.argv[1:])"
    given = [command, str(model), "--output", str(output), "--threads", "1", *arguments]
    return subprocess.Popen(
        [sys.executable, "-c", program, *given],
        cwd=Path(__file__).parents[3],
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    write_native_marian(tmp_path / "model")
    # No file may get longer than this, as on a disk that is full.
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))"
    child = started(tmp_path / "model", tmp_path / "bundle", "--languages", "en,de", before=limit)
    _, errors = child.communicate(timeout=240)
    assert child.returncode == 1, errors
    assert "File too large" in errors
    assert "Traceback" not in errors
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_an_interrupted_import_leaves_nothing(tmp_path: Path) -> None:
    write_native_marian(tmp_path / "model")
    sentences = tmp_path / "sentences"
    sentences.write_text("A dog is running in the street.\n" * 3000)
    arguments = ["--languages", "en,de", "--sentences", str(sentences)]
    child = started(tmp_path / "model", tmp_path / "bundle", *arguments)
    assert child.stderr is not None
    assert any("translating" in line for line in child.stderr)  # its files are written by then
    assert any(file.name.startswith(".bundle.") for file in tmp_path.iterdir())
    child.send_signal(signal.SIGTERM)
    _, errors = child.communicate(timeout=240)
    assert child.returncode == 128 + signal.SIGTERM, errors
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model", "sentences"]


@pytest.mark.parametrize(
    ("output_format", "network", "last"),
    [
        ("marian", "student-tiny", "export.students.writer.binary"),
        ("huggingface", "tiny", "safetensors.torch.save_file"),
    ],
)
def test_an_interrupted_export_leaves_nothing(
    tmp_path: Path, output_format: str, network: str, last: str
) -> None:
    """SIGTERM arrives in the middle: where `last` would write."""
    path = tmp_path / TOKENIZER_FILE
    tokenizer = train_tokenizer(iter(TEXTS), path, vocab_size=450)
    path.unlink()
    model = Transformer(preset(network, 450, norm="post"))
    languages = {"source": "en", "target": "de"}
    save_checkpoint(tmp_path / "ours", model, tokenizer, languages=languages)
    module, _, name = last.rpartition(".")
    before = (
        f"import os, signal, {module}; "
        f"{module}.{name} = lambda *_: os.kill(os.getpid(), signal.SIGTERM)"
    )
    arguments = ["--format", output_format]
    child = started(
        tmp_path / "ours", tmp_path / "out", *arguments, before=before, command="export"
    )
    _, errors = child.communicate(timeout=240)
    assert child.returncode == 128 + signal.SIGTERM, errors
    assert [file.name for file in tmp_path.iterdir()] == ["ours"]

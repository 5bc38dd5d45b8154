"""`dragoman export` as a command."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from cli.export import export
from model.bundle.bundle import Bundle
from model.network.checkpoint import save_checkpoint
from model.network.transformer import Transformer
from tests.factories import tiny_config, tiny_tokenizer

app = typer.Typer()
app.command()(export)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model = Transformer(tiny_config()).eval()
    tokenizer = tiny_tokenizer(tmp_path / "tokenizer")
    save_checkpoint(
        tmp_path / "checkpoint", model, tokenizer, languages={"source": "en", "target": "de"}
    )
    return tmp_path / "checkpoint"


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_a_bundle_with_sentences_of_ones_own(checkpoint: Path, tmp_path: Path) -> None:
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("A dog.\n\n  Two men.  \n", encoding="utf-8")
    code, output = run(
        *(checkpoint, "--output", tmp_path / "bundle", "--precision", "int8"),
        *("--sentences", sentences, "--name", "pets", "--model-version", "3", "--top-k", 16),
        *("--threads", 1),
    )
    assert code == 0, output
    words = " ".join(output.split())
    # Others are spoken of only where there are any.
    assert ("all 2 sentences are" in words) != ("of 2 sentences are" in words)
    assert ("the others" in words) == ("of 2 sentences are" in words)
    # Without a terminal, each stage is a line.
    assert "translating with the checkpoint: 2 sentences" in output
    assert "comparing with the bundle: 2 sentences" in output
    bundle = Bundle.load(tmp_path / "bundle")
    assert (bundle.name, bundle.version) == ("pets", "3")
    assert (bundle.precision, bundle.top_k) == ("int8", 16)


def test_errors_are_one_line_each(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    output = ("--output", tmp_path / "bundle")
    for arguments, message in (
        ((tmp_path / "nowhere", *output), "is this a checkpoint?"),
        ((checkpoint, *output, "--precision", "int4"), "precision must be one of"),
        ((checkpoint, *output, "--sentences", tmp_path / "empty"), "has no sentence"),
        ((checkpoint, *output, "--sentences", tmp_path / "latin"), "is not UTF-8"),
        ((checkpoint, *output, "--sentences", tmp_path / "none"), "none"),
        ((checkpoint, *output, "--model-card", tmp_path / "none"), "none"),
    ):
        code, text = run(*arguments)
        assert code == 1
        assert text.startswith("dragoman: ")
        assert message in text
        assert "Traceback" not in text
    assert not (tmp_path / "bundle").exists()


def test_the_way_back_to_transformers(checkpoint: Path, tmp_path: Path) -> None:
    code, text = run(checkpoint, "--output", tmp_path / "library", "--format", "huggingface")
    assert code == 1
    assert "transformers has no network with positions = 'learned'" in text
    code, text = run(checkpoint, "--output", tmp_path / "library", "--format", "gguf")
    assert code == 1
    assert "--format must be bundle, marian or huggingface" in text
    assert not (tmp_path / "library").exists()

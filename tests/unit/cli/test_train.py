"""`dragoman train` as a command: what it says before anything is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cli.train import train

app = typer.Typer()
app.command()(train)
RECIPE = Path("model/recipes/small-corpus.toml")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name in ("train.en", "train.de", "valid.en", "valid.de"):
        (tmp_path / name).write_text("A dog.\n")
    return tmp_path


def refusal(*arguments: object) -> str:
    """The one line with which a run is refused."""
    result = CliRunner().invoke(app, [str(RECIPE), *map(str, arguments)])
    assert result.exit_code == 1, result.output
    assert result.output.startswith("dragoman: ")
    assert result.output.count("\n") == 1
    return result.output


def test_a_missing_corpus_names_the_data_root_and_the_option(tmp_path: Path) -> None:
    message = refusal("--data-root", tmp_path / "nowhere")
    assert f"{tmp_path}/nowhere/train.en: there is no such file" in message
    assert "--data-root" in message


def test_a_device_that_does_not_exist_is_quoted(corpus: Path, tmp_path: Path) -> None:
    arguments = ("--data-root", corpus, "--output", tmp_path / "run", "--device", "gpu")
    assert "must be auto, cpu or cuda, not 'gpu'" in refusal(*arguments)


def test_an_output_that_is_a_file_is_named(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "file"
    output.touch()
    assert f"{output}: File exists" in refusal("--data-root", corpus, "--output", output)

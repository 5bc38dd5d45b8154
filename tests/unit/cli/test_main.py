"""Messages of the commands before they do anything."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import dragoman
from cli.main import app

ROOT = Path(__file__).parents[3]


def commands() -> Iterator[tuple[str, ...]]:
    """The words of every command and subcommand."""
    root = typer.main.get_command(app)
    assert isinstance(root, typer.core.TyperGroup)
    yield ()
    for name, command in root.commands.items():
        yield (name,)
        yield from ((name, below) for below in getattr(command, "commands", ()))


def parameters(words: tuple[str, ...]) -> list[Any]:
    command = typer.main.get_command(app)
    for word in words:
        assert isinstance(command, typer.core.TyperGroup)
        command = command.commands[word]
    return list(command.params)


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_help_fits_80_columns_with_whole_option_names(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    for parameter in parameters(words):
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("--"):
                assert option in result.output


def test_paragraphs_of_the_help_are_wrapped_anew() -> None:
    result = CliRunner().invoke(app, ["translate", "--help"], env={"COLUMNS": "80"})
    paragraph = result.output.split("\n\n")[2].splitlines()
    assert all(len(line) > 60 for line in paragraph[:-1]), paragraph


def test_the_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.output == f"dragoman {dragoman.__version__}\n"
    assert result.exit_code == 0


@pytest.mark.parametrize(("device", "extra"), [("cpu", "cpu"), ("cuda:1", "gpu")])
def test_serving_without_onnx_runtime_names_what_is_missing(device: str, extra: str) -> None:
    program = (
        "import sys; sys.modules['onnxruntime'] = None; "  # as if it were not installed
        f"from cli.main import app; app(['serve', '--port', '0', '--device', '{device}'])"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True)
    line = json.loads(ended.stderr)
    assert line["level"] == "critical"
    assert line["message"] == (
        f"ONNX Runtime is missing: pip install '.[{extra}]' in the folder of Dragoman's source"
    )
    assert ended.returncode == 1

"""Messages of the commands before they do anything, and if no server answers."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import typer.main
from typer.testing import CliRunner

import dragoman
from cli.exits import describe
from cli.main import app
from dragoman import TranslationError

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


# --- no server ------------------------------------------------------------------------------------

OVERDUE = grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of something that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def another() -> Iterator[str]:
    """The address of a gRPC server without our service."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def translate(address: str, timeout: str) -> str:
    arguments = ["translate", "--server", address, "--timeout", timeout, "A dog."]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    return result.stderr


def test_no_answer_in_time(silent: str) -> None:
    said = f"dragoman: no answer from {silent} in time: the server may be busy or missing\n"
    assert translate(silent, "0.2") == said


def test_a_server_of_another_kind(another: str) -> None:
    said = f"dragoman: {another} is not a Dragoman server"
    assert translate(another, "30").startswith(said)


def test_what_a_server_of_ours_says_is_passed_on() -> None:
    error = TranslationError(OVERDUE, "it can't be done in 1 s", request_id="7")
    assert describe("host:1", error) == "host:1: DEADLINE_EXCEEDED: it can't be done in 1 s"

"""Messages of the commands if no Dragoman server answers."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from typer.testing import CliRunner

from cli.exits import describe
from cli.main import app
from dragoman import TranslationError

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

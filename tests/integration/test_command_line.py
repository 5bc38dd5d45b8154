"""The `dragoman` command against a server."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from model.bundle.tokenizer import Tokenizer
from tests.fake_runner import FakeRunner
from tests.integration.neighbours import held_calls
from tests.integration.servers import (
    ROOT,
    DoneCommand,
    Running,
    command_environment,
    done,
    dragoman,
    fake_runner,
    running_fake,
)


@pytest.fixture
async def server(runner: FakeRunner, tokenizer: Tokenizer) -> AsyncIterator[Running]:
    """A server that returns texts unchanged."""
    async with running_fake(runner, tokenizer, max_characters=1000) as made:
        yield made


async def run(
    server: Running | str, *arguments: str, given: bytes = b"", command: str = "translate"
) -> DoneCommand:
    """Run a command against `server`, with `given` on standard input."""
    address = server if isinstance(server, str) else server.address
    return await done(command, "--server", address, *arguments, given=given)


async def piped(
    server: Running,
) -> tuple[asyncio.subprocess.Process, asyncio.StreamWriter, asyncio.StreamReader]:
    """`dragoman translate` with pipes, and its standard input and output."""
    pipe = asyncio.subprocess.PIPE
    process = await dragoman(
        "translate", "--server", server.address, stdin=pipe, stdout=pipe, stderr=pipe
    )
    assert process.stdin is not None
    assert process.stdout is not None
    return process, process.stdin, process.stdout


async def shell(command: str) -> tuple[int | None, bytes, str]:
    """The status, the output and the errors of a shell's command."""
    process = await asyncio.create_subprocess_shell(
        command,
        env=command_environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return process.returncode, output, errors.decode()


async def test_texts_from_the_command_line(server: Running) -> None:
    result = await run(server, "A dog is running.", "Two\nmen.", "--from", "en", "--to", "de")
    assert result == (0, "A dog is running.\nTwo\nmen.\n", "")


@pytest.mark.parametrize("stream", [(), ("--stream",)])
@pytest.mark.parametrize(
    "lines",
    [
        b"",
        b"\n",
        b"A dog.\n",
        b"A dog.",
        b"\n  \nA dog.\n\n\t\nTwo men.\n\n",
        b"A dog.\r\nTwo\xe2\x80\xa8men.\x0bThe lake.\n",
    ],
)
async def test_one_line_out_for_each_line_in(
    server: Running, lines: bytes, stream: tuple[str, ...]
) -> None:
    result = await run(server, *stream, given=lines)
    ending = b"" if lines.endswith(b"\n") or not lines else b"\n"
    assert result == (0, (lines + ending).decode(), "")


async def test_a_long_input_keeps_its_order_over_many_calls(server: Running) -> None:
    lines = b"".join(b"A dog %d.\n" % number * (number % 3 + 1) for number in range(600))
    result = await run(server, given=lines)
    assert result == (0, lines.decode(), "")
    calls = server.metric("dragoman_requests_total", method="Translate", code="OK")
    assert len(lines.splitlines()) / 64 <= calls <= 60


async def test_an_endless_input_is_read_no_further_than_it_is_translated(
    server: Running, runner: FakeRunner
) -> None:
    runner.hold()
    process, stdin, stdout = await piped(server)
    stdin.transport.set_write_buffer_limits(high=1)
    line = b"A dog." + b" " * 900 + b"\n"  # many bytes, and few tokens to translate
    lines = line * 20
    stdin.write(lines)
    await asyncio.to_thread(runner.wait_until_blocked)  # it has started, and reads
    written = len(lines)
    # The command stops reading; then the pipe is full and `drain` waits.
    try:
        while written < 50_000_000:
            stdin.write(lines)
            async with asyncio.timeout(1):
                await stdin.drain()
            written += len(lines)
    except TimeoutError:
        pass
    assert written < 10_000_000
    runner.release()
    stdin.close()
    output = await stdout.read()
    assert await process.wait() == 0
    assert set(output.splitlines(keepends=True)) == {line}
    assert len(output) >= written


async def test_lines_are_answered_while_more_may_come(server: Running) -> None:
    process, stdin, stdout = await piped(server)
    for line in (b"A dog.\n", b"\n", b"Two men.\n"):
        stdin.write(line)
        assert await stdout.readline() == line
    stdin.close()
    assert await process.wait() == 0


@pytest.mark.parametrize("stream", [(), ("--stream",)])
async def test_a_bad_line_is_empty_reported_and_counts_in_the_status(
    server: Running, stream: tuple[str, ...]
) -> None:
    lines = [b"A dog.", b"nu\0l", b"Two men.", b"x" * 1001, b"\xff\xfe", b"The lake."]
    result = await run(server, *stream, given=b"\n".join(lines) + b"\n")
    assert result.status == 1
    assert result.output == "A dog.\n\nTwo men.\n\n\nThe lake.\n"
    nul, long, bytes_ = result.errors.splitlines()
    assert nul.startswith("dragoman: line 2: ")
    assert "NUL" in nul
    assert long == "dragoman: line 4: 1,001 characters, the limit is 1,000"
    assert bytes_ == "dragoman: line 5: not valid UTF-8 at byte 1"


async def test_lines_too_long_for_grpc_are_found_among_good_ones(tokenizer: Tokenizer) -> None:
    async with running_fake(fake_runner(tokenizer), tokenizer, max_message_bytes=2000) as server:
        lines = b"A dog.\n" * 300 + b"x" * 3000 + b"\nTwo men.\n"
        result = await run(server, given=lines)
    assert result.status == 1
    assert result.output == "A dog.\n" * 300 + "\nTwo men.\n"
    assert result.errors.startswith("dragoman: line 301: ")
    assert "--max-message-bytes" in result.errors
    assert len(result.errors.splitlines()) == 1


async def test_a_busy_server_is_asked_again(runner: FakeRunner, tokenizer: Tokenizer) -> None:
    async with running_fake(runner, tokenizer, max_waiting=2) as server:

        def calls(code: str) -> float:
            return server.metric("dragoman_requests_total", method="Translate", code=code)

        held = await held_calls(server, runner, 6)
        asked = asyncio.ensure_future(run(server, "Two men."))
        while not calls("RESOURCE_EXHAUSTED"):
            await asyncio.sleep(0)
        runner.release()
        assert await asked == (0, "Two men.\n", "")
        await asyncio.gather(*held)
        assert calls("OK") == 7


async def test_a_server_that_stays_busy_is_asked_until_the_timeout(
    runner: FakeRunner, tokenizer: Tokenizer
) -> None:
    async with running_fake(runner, tokenizer, max_waiting=2) as server:
        held = await held_calls(server, runner, 6)
        result = await run(server, "--timeout", "3", "Two men.")
        assert (result.status, result.output) == (1, "")
        assert len(result.errors.splitlines()) == 1
        refused = server.metric(
            "dragoman_requests_total", method="Translate", code="RESOURCE_EXHAUSTED"
        )
        # With a pause of a tenth of a second or more after each.
        assert 2 <= refused <= 30
        runner.release()
        await asyncio.gather(*held)


@pytest.mark.parametrize("stream", [(), ("--stream",)])
async def test_what_concerns_every_line_ends_the_run(
    server: Running, stream: tuple[str, ...]
) -> None:
    result = await run(server, *stream, "--to", "fr", given=b"A dog.\nTwo men.\n")
    assert (result.status, result.output) == (1, "")
    assert "NOT_FOUND" in result.errors
    assert "it translates: en to de" in result.errors
    assert "stopped at line 1" in result.errors
    assert len(result.errors.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("translate", ["A dog."]),
        ("translate", ["--stream", "A dog."]),
        ("models", []),
        ("languages", []),
    ],
)
async def test_a_server_that_is_not_there(command: str, arguments: list[str]) -> None:
    result = await run("127.0.0.1:1", *arguments, command=command)
    assert (result.status, result.output) == (1, "")
    assert result.errors.startswith(
        'dragoman: no server at 127.0.0.1:1 accepts calls; is "dragoman serve" running there, '
        "and ready? (/readyz on its metrics port says why not)"
    )
    assert len(result.errors.splitlines()) == 1


async def test_a_server_that_goes_away_in_the_middle(
    runner: FakeRunner, tokenizer: Tokenizer
) -> None:
    async with running_fake(runner, tokenizer, drain_seconds=0.0) as server:
        process, stdin, stdout = await piped(server)
        stdin.write(b"A dog.\n")
        assert await stdout.readline() == b"A dog.\n"
    output, errors = await process.communicate(b"Two men.\nThe lake.\n")
    assert process.returncode == 1
    assert output == b""
    assert b"UNAVAILABLE" in errors or b"accepts calls" in errors
    assert b"stopped at line 2" in errors
    assert b"Traceback" not in errors


async def test_a_reader_that_stops_reading(server: Running) -> None:
    command = f"{sys.executable} -m cli.main translate --server {server.address}"
    _, output, errors = await shell(f"yes 'A dog.' | {command} | head -1")
    assert (output, errors) == (b"A dog.\n", "")


@pytest.mark.parametrize(
    ("redirection", "reason"), [("0>/dev/null", "Bad file descriptor"), ("0<&-", "it is closed")]
)
async def test_an_input_that_can_t_be_read(server: Running, redirection: str, reason: str) -> None:
    command = f"{sys.executable} -m cli.main translate --server {server.address}"
    told = f"dragoman: standard input: {reason}\n"
    assert await shell(f"{command} {redirection}") == (1, b"", told)


async def test_models_as_a_table_and_as_json(server: Running) -> None:
    table = await run(server, command="models")
    assert table.status == 0
    assert "fake" in table.output
    assert "en to de" in table.output
    assert "serving" in table.output
    (model,) = json.loads((await run(server, "--json", command="models")).output)
    assert model["name"] == "fake"
    assert model["language_pairs"] == [["en", "de"]]
    assert model["limits"]["max_characters"] == 1000


async def test_languages_as_a_table_and_as_json(server: Running) -> None:
    table = await run(server, command="languages")
    assert table.output.split() == ["from", "into", "models", "en", "de", "fake"]
    (group,) = json.loads((await run(server, "--json", command="languages")).output)
    assert group == {
        "source_languages": ["en"],
        "target_languages": ["de"],
        "models": ["fake"],
        "pivot_language": "",
    }


@pytest.mark.parametrize(
    "arguments", [("--max-new-tokens", "0"), ("--timeout", "0"), ("--nonsense",)]
)
async def test_wrong_arguments_are_a_usage_error(arguments: tuple[str, ...]) -> None:
    result = await run("127.0.0.1:1", *arguments, "A dog.")
    assert result.status == 2
    assert "Usage:" in result.errors


def test_help_is_quick_because_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, cli.main\n"
        "heavy = {'torch', 'onnxruntime', 'onnx', 'grpc', 'numpy', 'sentencepiece', 'sacrebleu'}\n"
        "print(*sorted(heavy & set(sys.modules)))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=command_environment(),
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert result.stdout.strip() == ""


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs pseudo-terminals")
async def test_at_a_terminal_it_says_that_it_waits(server: Running) -> None:
    ours, theirs = os.openpty()
    process = await dragoman(
        *("translate", "--server", server.address),
        stdin=theirs,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(theirs)
    assert process.stderr is not None
    assert b"Ctrl-D" in await process.stderr.readline()
    os.write(ours, b"A dog.\n\x04")
    output, errors = await process.communicate()
    os.close(ours)
    assert (process.returncode, output, errors) == (0, b"A dog.\n", b"")


def everything(terminal: int) -> str:
    """Read a terminal until its other side is closed."""
    shown = b""
    with contextlib.suppress(OSError):  # which is how Linux tells of that
        while part := os.read(terminal, 100_000):
            shown += part
    return shown.decode()


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs pseudo-terminals")
async def test_progress_on_a_terminal_only(
    server: Running, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = tmp_path_factory.mktemp("input") / "text"
    text.write_bytes(b"A dog is running.\n" * 200)
    ours, theirs = os.openpty()
    with text.open("rb") as given:
        process = await dragoman(
            "translate",
            *("--server", server.address),
            stdin=given,
            stdout=asyncio.subprocess.PIPE,
            stderr=theirs,
        )
    os.close(theirs)
    # Read while it runs: a terminal that nobody reads from holds whoever writes much to it.
    (output, _), shown = await asyncio.gather(
        process.communicate(), asyncio.to_thread(everything, ours)
    )
    os.close(ours)
    assert process.returncode == 0
    assert output == text.read_bytes()
    assert "200 lines" in shown
    assert "100 %" in shown

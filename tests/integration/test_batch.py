"""`dragoman batch` with servers that come and go."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from bench.processes import descendants
from model.bundle.tokenizer import Tokenizer
from tests.integration.servers import done, dragoman, fake_runner, running_fake

ROWS = [f"A dog runs {'fast ' * (index % 7)}." for index in range(90)]
OPTIONS = ("--from", "en", "--to", "de", "--part-rows", "20")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{row}\n" for row in ROWS))
    return path


async def test_two_servers_and_one_that_is_away(
    source: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    one, other = (
        fake_runner(tokenizer, max_source_positions=256, max_target_positions=256) for _ in range(2)
    )
    async with running_fake(one, tokenizer) as first, running_fake(other, tokenizer) as second:
        addresses = [first.address, "127.0.0.1:1", second.address]
        servers = [word for address in addresses for word in ("--server", address)]
        status, output, errors = await done(
            "batch", source, "--output", tmp_path / "out.txt", *servers, *OPTIONS
        )
    assert (status, "90 rows" in output) == (0, True), errors
    assert (tmp_path / "out.txt").read_text() == source.read_text()  # the models echo
    assert not (tmp_path / "out.txt.dragoman-job").exists()


async def test_a_killed_job_goes_on_with_models_in_its_own_process(
    source: Path, bundle_path: Path, tmp_path: Path
) -> None:
    source.write_text(source.read_text() * 10)  # so that it is killed before its end
    output = tmp_path / "out.txt"
    command = (source, "--output", output, "--bundle", bundle_path, "--part-rows", "20")
    process = await dragoman("batch", *command, stderr=asyncio.subprocess.PIPE)
    state = tmp_path / "out.txt.dragoman-job"
    while not [*state.glob("0*.json")] and process.returncode is None:
        await asyncio.sleep(0.01)
    process.kill()
    await process.wait()
    kept = [*state.glob("0*.json")]
    assert kept
    num_kept = sum(json.loads(part.read_text())["extent"]["rows"] for part in kept)
    status, _, errors = await done("batch", *command)
    assert status == 0, errors
    assert f"going on after {num_kept} rows" in errors
    assert output.read_bytes().count(b"\n") == 10 * len(ROWS)
    assert (await done("batch", *command))[1] == f"{output}: is complete already\n"


async def test_a_job_ends_on_sigterm_and_goes_on_when_its_model_dies(
    source: Path, bundle_path: Path, tmp_path: Path
) -> None:
    source.write_text("".join(f"{row} {index}\n" for index, row in enumerate(ROWS * 15)))
    command = (source, "--output", tmp_path / "out.txt", "--bundle", bundle_path)
    for ends, status in (
        (lambda process: process.terminate(), 128 + 15),
        (lambda process: os.kill(worker_of(process.pid), 9), 0),
    ):
        process = await dragoman("batch", *command, "--part-rows", "20", stderr=-1)
        before = done_parts(tmp_path)
        while done_parts(tmp_path) == before and process.returncode is None:
            await asyncio.sleep(0.01)
        ends(process)
        _, errors = await process.communicate()
        assert process.returncode == status, errors
        assert b"Traceback" not in errors
    assert (tmp_path / "out.txt").read_bytes().count(b"\n") == 15 * len(ROWS)


async def test_a_job_ends_when_its_model_dies_again_and_again(
    source: Path, bundle_path: Path, tmp_path: Path
) -> None:
    source.write_text("".join(f"{row} {index}\n" for index, row in enumerate(ROWS * 15)))
    command = (source, "--output", tmp_path / "out.txt", "--bundle", bundle_path)
    process = await dragoman("batch", *command, "--part-rows", "20", stderr=-1)
    while not done_parts(tmp_path) and process.returncode is None:
        await asyncio.sleep(0.01)
    ended = asyncio.create_task(process.communicate())
    killed: set[int] = set()
    while not ended.done():
        for worker in workers_of(process.pid) - killed:
            killed.add(worker)
            os.kill(worker, signal.SIGKILL)
        await asyncio.sleep(0.01)
    _, errors = await ended
    assert process.returncode == 1, errors
    assert b"a model stopped working" in errors
    assert b"Traceback" not in errors


def done_parts(folder: Path) -> int:
    """Number of finished parts."""
    return len([*(folder / "out.txt.dragoman-job").glob("0*.json")])


def worker_of(pid: int) -> int:
    """The process of the model among the descendants of a process."""
    (worker,) = workers_of(pid)
    return worker


def workers_of(pid: int) -> set[int]:
    """The processes of models among the descendants of a process."""
    found = set()
    for child in descendants(pid):
        with contextlib.suppress(FileNotFoundError):
            if b"service.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.add(child)
    return found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("in.txt", "--format", "xml"), "--format: must be one of text, jsonl"),
        (("in.doc",), "unsupported file type: expected .txt"),
        (("none.txt",), "INPUT: there is no file"),
        (("in.csv", "--column", "body"), "no column 'body'; there are id, text"),
        (("nope://x/y.txt",), "INPUT or --output: Protocol not known: nope"),
    ],
)
async def test_errors_name_what_is_wrong(
    source: Path, bundle_path: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "in.csv").write_text("id,text\n1,a\n")
    (tmp_path / "in.doc").write_text("a")
    file = arguments[0] if ":" in arguments[0] else tmp_path / arguments[0]
    output = ("--output", tmp_path / "out.csv", "--bundle", bundle_path)
    status, _, errors = await done("batch", file, *arguments[1:], *output)
    assert status == 1
    assert message in errors
    assert not (tmp_path / "out.csv").exists()

"""Documents in real worker processes, with readers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.documents.document import DocumentLimits
from service.documents.formats import READERS, read_document
from service.documents.work import DocumentTexts, DocumentWork, encode_texts
from service.documents.worker_pool import DocumentWorkers
from service.documents.worker_template import WorkerLimits, WorkerTemplate
from service.errors import (
    DragomanError,
    InternalError,
    InvalidArgumentError,
    UnavailableError,
)
from service.observability.metrics import ServerMetrics
from tests.unit.service.documents import samples
from tests.unit.service.documents.hostile_readers import MODULE, Held, ended

LIMITS = DocumentLimits()
GOOD = b"A dog runs.\n\nA dog runs.\n\nIt barks.\n"
SMALL = WorkerLimits(num_workers=2, memory_mib=64, seconds=1)
PATIENT = WorkerLimits(num_workers=2, memory_mib=64, seconds=3600)

linux = pytest.mark.skipif(sys.platform != "linux", reason="uses descriptors of processes")


class Pool:
    """Workers and their metrics."""

    def __init__(self, resources: WorkerLimits, readers: str = MODULE) -> None:
        self.metrics = ServerMetrics()
        self.workers = DocumentWorkers(LIMITS, resources, self.metrics.documents, readers)

    async def read(self, file: bytes, client: str = "a", name: str = "a.txt") -> DocumentTexts:
        return await self.workers.read(name, file, 1_000_000, client)

    async def write(self, file: bytes, *batches: list[str], name: str = "a.txt") -> bytes:
        lines = [encode_texts(batch) for batch in batches]
        return await self.workers.write(name, file, 1_000_000, lines, "a")

    def killed(self, reason: str) -> float:
        name = "dragoman_document_workers_killed_total"
        return self.metrics.registry.get_sample_value(name, {"reason": reason}) or 0.0


@contextlib.asynccontextmanager
async def pool(resources: WorkerLimits = SMALL, readers: str = MODULE) -> AsyncIterator[Pool]:
    made = Pool(resources, readers)
    try:
        yield made
    finally:
        await made.workers.stop()


def children() -> set[str]:
    """The processes that any thread of this one has started."""
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {child for file in tasks for child in file.read_text().split()}


# --- documents -----------------------------------------------------------------------------------


async def test_a_document_passes_through_two_processes() -> None:
    async with pool() as made:
        texts = await made.read(GOOD)
        assert (texts.num_segments, texts.num_characters) == (3, 20)
        assert texts.sample == "A dog runs.\nIt barks."
        assert [batch for _, batch in texts.batches()] == [["A dog runs.", "It barks."]]
        written = await made.write(GOOD, ["Ein Hund.", "Er bellt."])
        assert written == b"Ein Hund.\n\nEin Hund.\n\nEr bellt.\n"
        word = samples.word(samples.letter())
        texts = await made.read(word, name="a.docx")
        segments = read_document("a.docx", word, LIMITS).segments
        kinds = {segment.text: segment.mime_type for segment in segments}
        assert texts.num_segments == len(segments)
        assert {text: kind for kind, batch in texts.batches() for text in batch} == kinds
        same = [batch for _, batch in texts.batches()]
        assert await made.write(word, *same, name="a.docx") == word


async def test_large_texts_cross_in_batches() -> None:
    file = "\n\n".join(f"{number} {'ü' * 100}" for number in range(5_000)).encode()
    async with pool() as made:
        texts = await made.read(file)
        batches = [batch for _, batch in texts.batches()]
        assert sum(map(len, batches)) == texts.num_segments == 5_000
        assert max(map(len, batches)) == 128
        assert await made.write(file, *batches) == file


@pytest.mark.parametrize(
    ("name", "file", "field", "reason"),
    [
        ("a.exe", GOOD, "file_name", "has an unsupported type: expected .txt"),
        ("a.txt", b"\xff", "content", "not UTF-8"),
        ("a.docx", b"PK", "content", "no zip file"),
        ("a.txt", b"x " * 500_001, "content", "1,000,001 characters of text, the limit is 1,000,0"),
    ],
)
async def test_a_bad_file_has_the_error_of_its_reader(
    name: str, file: bytes, field: str, reason: str
) -> None:
    async with pool() as made:
        with pytest.raises(InvalidArgumentError, match=reason) as caught:
            await made.read(file, name=name)
        assert caught.value.field == field


# --- readers that misbehave ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "kind", "message", "reason", "how"),
    [
        (b"loop /dev/null", InvalidArgumentError, "more than 1 s of processor", "time", "killed"),
        (b"grow", InvalidArgumentError, "more than 64 MiB of memory", "memory", "killed"),
        (b"kill 11", InternalError, "could not be read", "crash", "SIGSEGV"),
        (b"kill 9", InvalidArgumentError, "more memory than the se", "out_of_memory", "SIGKILL"),
        (b"leave", InternalError, "could not be read", "crash", "status 3"),
    ],
)
async def test_a_worker_that_ends_early_is_counted_and_logged_and_replaced(
    file: bytes,
    kind: type[DragomanError],
    message: str,
    reason: str,
    how: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pool() as made:
        with pytest.raises(kind, match=message) as caught:
            await made.read(file)
        if isinstance(caught.value, InvalidArgumentError):
            assert caught.value.field == "content"
        assert made.killed(reason) == 1
        [record] = [each for each in caplog.records if each.name == "dragoman.documents"]
        assert (record.levelno, vars(record)["reason"]) == (logging.WARNING, reason)
        assert how in vars(record)["how"]
        assert (await made.read(GOOD)).num_segments == 3


async def test_writing_has_the_same_limits() -> None:
    async with pool() as made:
        with pytest.raises(InvalidArgumentError, match="writing its translation takes more than 1"):
            await made.write(b"loop /dev/null", ["x"])


async def test_a_defect_is_logged_without_what_the_document_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pool() as made:
        with pytest.raises(InternalError, match="could not be read"):
            await made.read(b"defect Xylophon")
    [record] = caplog.records
    assert vars(record)["error"] == "RuntimeError"
    assert vars(record)["where"][-1].startswith("hostile_readers.py:")
    assert "Xylophon" not in repr(vars(record))


@linux
async def test_others_are_read_while_a_file_holds_its_worker(tmp_path: Path) -> None:
    held = Held(tmp_path)
    async with pool(PATIENT) as made:
        hostile = [asyncio.create_task(made.read(held.content, "hostile")) for _ in range(5)]
        await asyncio.to_thread(held.begun)
        for client in ("b", "c", "b"):
            assert (await made.read(GOOD, client)).num_segments == 3
        assert not any(task.done() for task in hostile)
        for task in hostile:
            task.cancel()


@linux
async def test_a_cancelled_call_ends_its_worker(tmp_path: Path) -> None:
    held = Held(tmp_path)
    async with pool(PATIENT) as made:
        call = asyncio.create_task(made.read(held.content))
        process = await asyncio.to_thread(held.begun)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.to_thread(ended, process)
        assert made.killed("cancelled") == 1


@linux
async def test_a_worker_that_waits_for_ever_is_killed(tmp_path: Path) -> None:
    held = Held(tmp_path, "wait")
    async with pool(WorkerLimits(elapsed_factor=1, seconds=1)) as made:
        call = asyncio.create_task(made.read(held.content))
        process = await asyncio.to_thread(held.begun)
        with pytest.raises(InvalidArgumentError, match="processor time"):
            await call
        await asyncio.to_thread(ended, process)


# --- the template --------------------------------------------------------------------------------


@linux
async def test_without_a_document_there_is_no_process() -> None:
    before = children()
    async with pool() as made:
        for name in ("a.exe", "a"):
            with pytest.raises(InvalidArgumentError):
                await made.read(GOOD, name=name)
        assert children() == before
        await asyncio.gather(*(made.read(GOOD) for _ in range(5)))
        assert len(children() - before) == 1
    assert children() == before


async def test_readers_that_can_t_be_loaded_are_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pool(readers="tests.no_such_module") as made:
        calls = [made.read(GOOD) for _ in range(2)]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, UnavailableError)
            assert "the server's log says why" in str(error)
    [record] = caplog.records
    assert "ModuleNotFoundError" in vars(record)["error"]


@linux
async def test_a_template_that_dies_takes_its_workers_along_and_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held, before = Held(tmp_path), children()
    async with pool(PATIENT) as made:
        call = asyncio.create_task(made.read(held.content))
        process = await asyncio.to_thread(held.begun)
        [template] = children() - before
        os.kill(int(template), signal.SIGKILL)
        await asyncio.to_thread(ended, process)
        with pytest.raises(UnavailableError):
            await call
        assert (await made.read(GOOD)).num_segments == 3
    assert len(caplog.records) == 1


@linux
async def test_a_template_that_is_stopped_is_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = children()
    async with pool(dataclasses.replace(PATIENT, reaction_seconds=2.0)) as made:
        await made.read(GOOD)
        [template] = children() - before
        os.kill(int(template), signal.SIGSTOP)
        with pytest.raises(UnavailableError):
            await made.read(GOOD)
        assert (await made.read(GOOD)).num_segments == 3
    assert "did not react" in vars(caplog.records[0])["error"]


@linux
async def test_stopped_workers_end_their_calls(tmp_path: Path) -> None:
    held = Held(tmp_path)
    async with pool(PATIENT) as made:
        calls = [asyncio.create_task(made.read(held.content)) for _ in range(3)]
        process = await asyncio.to_thread(held.begun)
        await made.workers.stop()
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, UnavailableError)
            assert "shutting down" in str(error)
        await asyncio.to_thread(ended, process)


async def test_an_answer_is_bounded() -> None:
    template = await WorkerTemplate.start(SMALL, MODULE)
    try:
        work = DocumentWork("a.txt", GOOD, LIMITS, 1000).encode()
        assert isinstance(await template.exchange(work, 1000), bytes)
        with pytest.raises(ValueError, match="more than 10 bytes"):
            await template.exchange(work, 10)
    finally:
        await template.stop()


# --- what is imported where ----------------------------------------------------------------------


def loaded(program: str) -> set[str]:
    code = f"import sys\n{program}\nprint(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
        text=True,
    )
    return {name.partition(".")[0] for name in found.stdout.split()}


def test_a_worker_has_the_readers_and_little_else() -> None:
    names = loaded(
        "import service.documents.worker\n"
        "from service.documents.formats import load_readers\nload_readers()"
    )
    assert "lxml" in names
    assert not names & {"numpy", "grpc", "google", "sentencepiece", "onnxruntime", "asyncio"}


def test_the_server_has_no_reader() -> None:
    names = loaded("import service.server, service.ports.http.server, service.ports.http.app")
    assert "service" in names
    assert "lxml" not in names


def test_each_format_can_be_loaded() -> None:
    for reader in READERS.values():
        assert reader.load().__name__ == reader.name

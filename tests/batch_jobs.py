"""Jobs of `dragoman batch` on servers that translate a text to itself in brackets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cli.batch.inputs import find_inputs
from cli.batch.job import Job, Result
from cli.batch.pool import Pool
from cli.batch.run import run_parts
from cli.batch.storage import Storage
from tests.fake_servers import FakeServer

ROWS = [f"row {index}" for index in range(20)]


def write_rows(path: Path, rows: Sequence[str] = ROWS) -> Path:
    """Write a text file of rows."""
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def job_of(
    source: Path | str,
    output: Path | str,
    *,
    part_rows: int = 3,
    format: str = "",
    others: Sequence[Path] = (),
    **depends_on: Any,
) -> Job:
    """A job of small parts, as the command makes it."""
    at = Storage.of(str(output))
    files = find_inputs(str(source), at, format, others)
    is_one = [file.storage.path for file in files] == [Storage.of(str(source)).path]
    return Job(files, files[0].output if is_one else at, ("text",), depends_on, part_rows)


def run(job: Job, server: FakeServer | None = None) -> tuple[int, int]:
    """Do what is left of a job; returns the numbers of failed rows and of those with warnings."""
    if job.open() is not None:
        return 0, 0
    translate(job, server or FakeServer())
    return job.finish()


def translate(job: Job, server: FakeServer) -> None:
    """Translate the missing parts of an open job."""

    async def run_all() -> None:
        async with Pool({"fake": server}, {}, 60.0) as pool:
            await run_parts(job, job.missing(), pool, lambda rows: None)

    asyncio.run(run_all())


def run_one_part(job: Job) -> None:
    """Do the first part of a job."""
    job.open()
    part = job.missing()[0]
    rows = job.read(part)
    job.write(part, rows, {"text": [Result(text) for text in rows.texts["text"]]})

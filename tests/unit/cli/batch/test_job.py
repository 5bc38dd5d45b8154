"""Jobs that are interrupted anywhere translate each row exactly once."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.batch.job import Job, Result
from cli.batch.plan import JobError, JobPart, find_inputs
from cli.batch.pool import Pool
from cli.batch.run import run_parts
from cli.batch.storage import Storage
from dragoman.client import TranslationError
from tests.fake_servers import FakeServer, failure

ROWS = [f"row {index}" for index in range(20)]


def job_of(source: Path, output: Path, **depends_on: Any) -> Job:
    """A job of small parts."""
    files = find_inputs(str(source), Storage.of(str(output)), "")
    return Job(files, Storage.of(str(output)), ("text",), depends_on, part_rows=3)


def run(job: Job, server: FakeServer) -> tuple[int, int]:
    """Do what is left of a job; returns the numbers of failed rows and of those with warnings."""

    async def translate(parts: list[JobPart]) -> None:
        async with Pool({"fake": server}, {}, 60.0) as pool:
            await run_parts(job, parts, pool, lambda rows: None)

    if job.open() is not None:
        return 0, 0
    asyncio.run(translate(job.missing()))
    return job.finish()


def run_one_part(job: Job) -> None:
    """Do the first part of a job."""
    job.open()
    part = job.missing()[0]
    rows = job.read(part)
    job.write(part, rows, {"text": [Result(text) for text in rows.texts["text"]]})


def rows_of(part: JobPart) -> list[str]:
    return ROWS[part.first_row :][: part.extent.rows]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{row}\n" for row in ROWS))
    return path


@given(st.lists(st.integers(1, 12), max_size=6))
def test_an_interrupted_job_translates_each_row_once(calls_until_failures: list[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source, output = Path(directory, "in.txt"), Path(directory, "out.txt")
        source.write_text("".join(f"{row}\n" for row in ROWS))
        for calls in [*calls_until_failures, 100]:
            server = FakeServer()
            server.fails = lambda texts, server=server, most=calls: (  # type: ignore[misc]
                failure("NOT_FOUND") if server.translated.total() >= most else None
            )
            seen = job_of(source, output)
            is_left = seen.open() is None
            rows = [row for part in seen.missing() for row in rows_of(part)] if is_left else []
            try:
                run(job_of(source, output), server)
            except TranslationError:
                assert not output.exists()
            assert server.translated.keys() <= set(rows)  # what is kept is not done again
        assert output.read_text() == "".join(f"[{row}]\n" for row in ROWS)
        assert sorted(os.listdir(directory)) == ["in.txt", "out.txt", "out.txt.manifest.json"]


def test_a_finished_job_is_not_done_again(source: Path, tmp_path: Path) -> None:
    run(job_of(source, tmp_path / "out.txt"), FakeServer())
    assert job_of(source, tmp_path / "out.txt").open() == 0
    (tmp_path / "out.txt").unlink()
    with pytest.raises(JobError, match=r"out\.txt is gone since the job ended"):
        job_of(source, tmp_path / "out.txt").open()


@pytest.mark.parametrize("finished", [False, True])
def test_another_job_does_not_go_on_with_it(source: Path, tmp_path: Path, finished: bool) -> None:
    output = tmp_path / "out.txt"
    job = job_of(source, output, target="de")
    run(job, FakeServer()) if finished else run_one_part(job)
    with pytest.raises(JobError, match='target: "de", now "fr"'):
        job_of(source, output, target="fr").open()
    os.utime(source, (0, 0))
    assert job_of(source, output, target="de").open() == (
        0 if finished else None
    )  # the same content
    source.write_text("other\n")
    with pytest.raises(JobError, match=r"in\.txt has changed since the job began"):
        job_of(source, output, target="de").open()
    again = job_of(source, output, target="fr")
    again.restart()
    run(again, FakeServer())
    assert output.read_text() == "[other]\n"


def test_other_options_begin_anew_where_nothing_is_done(source: Path, tmp_path: Path) -> None:
    job_of(source, tmp_path / "out.txt", target="de").open()
    run(job_of(source, tmp_path / "out.txt", target="fr"), FakeServer())
    assert (tmp_path / "out.txt").exists()


@pytest.mark.parametrize("change", ["row\n", "x" * 300 + "\n"])
def test_an_input_that_changes_meanwhile_is_an_error(
    source: Path, tmp_path: Path, change: str
) -> None:
    job = job_of(source, tmp_path / "out.txt")
    run_one_part(job)
    source.write_text(change)
    with pytest.raises(JobError, match="has changed since the job began"):
        job.read(job.missing()[0])
    with pytest.raises(JobError, match="has changed since the job began"):
        job.finish()


def test_a_second_command_is_refused(source: Path, tmp_path: Path) -> None:
    job = job_of(source, tmp_path / "out.txt")
    with job.locked():
        other = job_of(source, tmp_path / "out.txt")
        with pytest.raises(JobError, match="another command works on"), other.locked():
            pass
    assert os.listdir(tmp_path) == ["in.txt"]


def test_a_damaged_compressed_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one\n" * 100)[:-9])
    (tmp_path / "b.txt.gz").write_bytes(b"one\n")
    for name in ("a.txt.gz", "b.txt.gz"):
        with pytest.raises(JobError, match=name):
            job_of(tmp_path / name, tmp_path / "out.txt").open()


def test_a_damaged_part_is_no_result(source: Path, tmp_path: Path) -> None:
    job = job_of(source, tmp_path / "out.txt")

    async def translate() -> None:
        async with Pool({"fake": FakeServer()}, {}, 60.0) as pool:
            await run_parts(job, job.missing(), pool, lambda rows: None)

    job.open()
    asyncio.run(translate())
    (tmp_path / "out.txt.dragoman-job" / "00000-000001.part").write_text("other\n")
    with pytest.raises(JobError, match=r"00000-000001\.part is damaged"):
        job.finish()


def test_a_folder_becomes_a_folder(tmp_path: Path) -> None:
    source = tmp_path / "in"
    (source / "deep").mkdir(parents=True)
    (source / "a.txt").write_text("one\n")
    (source / "deep" / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "two", "id": 7}\n'))
    (source / "image.png").write_bytes(b"\0")
    (source / ".hidden.txt").write_text("no\n")
    run(job_of(source, tmp_path / "out"), FakeServer())
    assert (tmp_path / "out" / "a.txt").read_text() == "[one]\n"
    row = json.loads(gzip.decompress((tmp_path / "out" / "deep" / "b.jsonl.gz").read_bytes()))
    assert row == {"text": "two", "id": 7, "text_translation": "[two]"}
    assert len([*(tmp_path / "out").rglob("*.*")]) == 2


def test_a_pattern_and_an_existing_folder(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    out = Storage.of(str(tmp_path / "out"))
    by_name = find_inputs(str(source), out, "")
    by_pattern = find_inputs(str(tmp_path / "*.txt"), out, "")
    assert by_name == by_pattern
    assert by_name[0].output.path == str(tmp_path / "out" / "in.txt")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.txt", "INPUT: there is no file"),
        ("*.csv", "has no files of a known type"),
        ("a.docx", r"a\.docx: unsupported file type: expected \.txt, .*, or --format"),
    ],
)
def test_inputs_that_can_not_be_read(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "a.docx").write_bytes(b"")
    with pytest.raises(JobError, match=message):
        find_inputs(str(tmp_path / name), Storage.of(str(tmp_path / "out")), "")


@pytest.mark.parametrize(
    ("source", "output"), [("in.txt", "in.txt"), ("in", "in/out"), ("in", "in")]
)
def test_an_output_is_no_input(tmp_path: Path, source: str, output: str) -> None:
    (tmp_path / source).mkdir()
    with pytest.raises(JobError, match="--output: is the input, or lies in it"):
        find_inputs(str(tmp_path / source), Storage.of(str(tmp_path / output)), "")


def test_rows_with_problems_are_listed_with_their_reasons(tmp_path: Path) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = ['{"text": "a"}', '{"text": "bad"}', "nonsense", '{"text": 4}', "{}", '{"text": ""}']
    source.write_text("".join(f"{line}\n" for line in lines))
    server = FakeServer(
        lambda texts: (
            failure("INVALID_ARGUMENT", field="contents[0]", description="no")
            if "bad" in texts
            else None
        ),
        warns=True,
    )
    assert run(job_of(source, output), server) == (3, 1)
    listed = Path(f"{output}.problems.jsonl")
    found = output.read_text().splitlines()
    assert found[2] == "nonsense"
    translated = [json.loads(line).get("text_translation") for line in found[:2] + found[3:]]
    assert translated == ["[a]", None, None, None, ""]
    problems = [json.loads(line) for line in listed.read_text().splitlines()]
    assert [each["row"] for each in problems] == [1, 2, 3, 4]
    assert problems[0]["warnings"] == [{"kind": "missing", "text": "a", "sentence": "a"}]
    assert problems[1] == {
        "input": str(source),
        "row": 2,
        "column": "text",
        "text": "bad",
        "error": "no",
    }
    assert problems[3]["error"] == "text: not a string"

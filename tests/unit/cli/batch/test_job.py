"""Jobs that are interrupted anywhere translate each row exactly once."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from cli.batch.inputs import InputFile, JobError, find_inputs
from cli.batch.job import Job
from cli.batch.plan import JobPart
from cli.batch.storage import Storage
from dragoman.client import TranslationError
from tests.batch_jobs import ROWS, job_of, run, run_one_part, translate, write_rows
from tests.fake_servers import FakeServer, failure


def rows_of(part: JobPart) -> list[str]:
    return ROWS[part.first_row :][: part.extent.rows]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "in.txt")


@given(st.lists(st.integers(1, 12), max_size=6))
def test_an_interrupted_job_translates_each_row_once(calls_until_failures: list[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source, output = write_rows(Path(directory, "in.txt")), Path(directory, "out.txt")
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


def test_an_input_with_the_old_size_and_time_is_another(source: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.txt"
    link.symlink_to(source)
    for name in (source, link):
        job = job_of(name, tmp_path / "out.txt")
        job.restart()
        run_one_part(job)
        about = source.stat()
        source.write_text(source.read_text().swapcase())
        os.utime(source, ns=(about.st_atime_ns, about.st_mtime_ns))
        with pytest.raises(JobError, match="has changed since the job began"):
            job_of(name, tmp_path / "out.txt").open()


class StaticFiles(MemoryFileSystem):  # type: ignore[misc]
    """A file system that believes that files never change, as fsspec's for HTTP does."""

    protocol = "static"

    def ukey(self, path: str) -> str:
        return path


def test_an_input_changes_whatever_its_file_system_believes(tmp_path: Path) -> None:
    place = Storage(StaticFiles(), "/static/in.txt")
    place.write(lambda file: file.write(b"one\n"))
    files = [InputFile(place, Storage.of(str(tmp_path / "out.txt")), "text")]
    job = Job(files, files[0].output, ("text",), {})
    run_one_part(job)
    place.write(lambda file: file.write(b"two\n"))
    with pytest.raises(JobError, match="has changed since the job began"):
        job.finish()


def test_a_job_is_known_by_its_formats_and_outputs(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,text\n1,a\n2,b\n")
    run_one_part(job_of(tmp_path / "in", tmp_path / "out", format="text", part_rows=1))
    for source, format in (("in", ""), ("i*/*.csv", "text")):
        with pytest.raises(JobError, match="is of a job with other files"):
            job_of(tmp_path / source, tmp_path / "out", format=format, part_rows=1).open()


def test_a_plan_says_how_many_rows_a_part_has(source: Path, tmp_path: Path) -> None:
    run_one_part(job_of(source, tmp_path / "out.txt"))
    run(job_of(source, tmp_path / "out.txt", part_rows=7), server := FakeServer())
    assert (tmp_path / "out.txt").read_text().count("row") == len(ROWS)
    assert "row 0" not in server.translated


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
    job.open()
    translate(job, FakeServer())
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

"""A job writes to none of its inputs, to nothing that it has not made, and to each place once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from cli.batch.inputs import JobError
from cli.batch.job import Job
from cli.batch.storage import Storage, in_parallel
from tests.batch_jobs import ROWS, job_of, run, translate, write_rows
from tests.fake_servers import FakeServer, failure

SOURCE = "".join(f"{row}\n" for row in ROWS)
TRANSLATED = "".join(f"[{row}]\n" for row in ROWS)


@pytest.fixture
def t(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder t in the current one, with two files of rows."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "t"
    folder.mkdir()
    write_rows(folder / "a.txt")
    write_rows(folder / "b.txt", ROWS[:7])
    return folder


def refused(source: str, output: str, message: str) -> None:
    """Check that a command is refused, also with --restart, and changes no file."""
    before = _contents()
    for begin in (Job.open, Job.restart):
        with pytest.raises(JobError, match=message):
            begin(job_of(source, output))
        assert _contents() == before


def _contents() -> dict[str, bytes | str]:
    """The contents of all files in the current folder."""
    return {
        str(path): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in Path().rglob("*")
        if not path.is_dir()
    }


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("t/a.txt", "t"),
        ("t/a.txt", "t/"),
        ("t/a.txt", "./t/../t"),
        ("t/a.txt", "file://{}/t"),
        ("t/*.txt", "t"),
        ("t/../t/*", "t"),
        ("*/a.txt", "."),
    ],
)
def test_an_output_that_is_an_input_is_refused(t: Path, source: str, output: str) -> None:
    message = "is the input|would be an input"
    refused(source, output.format(t.parent), message)


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("source", ["t/a.txt", "t/*.txt", "t"])
def test_links_hide_no_input(t: Path, link: Callable[[Path, Path], None], source: str) -> None:
    """Links from the outputs' folder to an input."""
    (t.parent / "out").mkdir()
    link(t / "a.txt", t.parent / "out" / "a.txt")
    refused(source, "out", r"out/a\.txt is the input .*/t/a\.txt")


@pytest.mark.parametrize("source", ["links/a.txt", "links/*.txt", "links"])
def test_an_input_that_is_a_link_is_what_it_points_to(t: Path, source: str) -> None:
    (t.parent / "links").mkdir()
    (t.parent / "links" / "a.txt").symlink_to(t / "a.txt")
    refused(source, "t", r"t/a\.txt is the input|is the input, or lies in it")


def test_a_folder_that_is_a_link_hides_no_input(t: Path) -> None:
    (t.parent / "same").symlink_to(t)
    refused("t/*.txt", "same", "is the input")
    refused("t", "same", "is the input, or lies in it")
    refused("same", "t", "is the input, or lies in it")


@pytest.mark.parametrize(
    ("name", "sources"),
    [
        ("a.problems.jsonl", ("t/a.problems.jsonl", "t/a.p*", "t/*")),
        ("a.manifest.json", ("t/a.manifest.json", "t/a.m*", "t/*")),
        ("a.dragoman-lock", ("t/a.dragoman-lock", "t/*-lock", "t/*")),
    ],
)
def test_what_a_job_writes_beside_its_output_is_no_input(
    t: Path, name: str, sources: tuple[str, ...]
) -> None:
    (t / name).write_text('{"text": "a"}\n')
    for source in sources:
        with pytest.raises(JobError, match=r"is the input|would be an input"):
            job_of(source, "t/a", format="jsonl")


def test_an_input_in_the_folder_of_the_jobs_parts_is_refused(t: Path) -> None:
    t.rename(t.parent / "out.dragoman-job")
    for source in ("out.dragoman-job/a.txt", "out.dragoman-job/*.txt", "out.dragoman-job"):
        refused(source, "out", "lies in the job's own folder")


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("t/**/*.txt", "t/de"),  # the outputs
        ("t/**", "t/de"),
        ("t*/*", "t2"),
        ("t/*", "t/out"),  # out.problems.jsonl
        ("t", "t/../t/out"),
    ],
)
def test_what_the_same_command_would_take_for_inputs_later_is_refused(
    t: Path, source: str, output: str
) -> None:
    refused(source, output, "would be an input of the same command|is the input, or lies in it")


def test_an_output_beside_the_inputs_is_no_input(t: Path) -> None:
    for source, output in (("t/*.txt", "t/de"), ("t/[ab].txt", "t2"), ("t", "t3")):
        run(job_of(source, output))
        assert Path(output, "a.txt").read_text() == TRANSLATED
        assert job_of(source, output).open() == 0
    assert (t / "a.txt").read_text() == "".join(f"{row}\n" for row in ROWS)


def test_two_outputs_that_are_one_file_are_refused(t: Path) -> None:
    for name in ("x", "y"):
        (t / name).mkdir()
        write_rows(t / name / "a.txt")
    (t.parent / "out").mkdir()
    (t.parent / "out" / "y").symlink_to(t.parent / "out" / "x")
    (t.parent / "out" / "x").mkdir()
    refused("t/*/a.txt", "out", r"out/x/a\.txt and .*/out/y/a\.txt are one file")


def test_outputs_that_become_one_file_meanwhile_are_an_error(t: Path) -> None:
    """As on a disk that takes upper and lower case for the same, which shows only there."""
    for name in ("x", "y"):
        (t / name).mkdir()
        write_rows(t / name / "a.txt")
    job = job_of("t/*/a.txt", "out")
    job.open()
    translate(job, FakeServer())
    (t.parent / "out" / "x").mkdir(parents=True)
    (t.parent / "out" / "y").symlink_to(t.parent / "out" / "x")
    with pytest.raises(JobError, match="are one file"):
        job.finish()
    assert not job.manifest.exists()


@pytest.mark.parametrize("name", ["out/b.txt", "out.problems.jsonl"])
def test_a_file_that_the_job_has_not_made_is_kept(t: Path, name: str) -> None:
    """It is there before the job, or comes before its end."""
    Path("out").mkdir()
    Path(name).write_text("precious")
    with pytest.raises(JobError, match=rf"{name} exists, and is not of this job: .*--restart"):
        run(job_of("t", "out"))
    Path(name).unlink()
    job = job_of("t", "out")
    job.open()
    translate(job, FakeServer())
    Path(name).write_text("precious")
    for again in (job, job_of("t", "out")):
        with pytest.raises(JobError, match=rf"{name} exists, and is not of this job"):
            again.open() if again is not job else again.finish()
    assert Path(name).read_text() == "precious"
    Path(name).unlink()
    run(job_of("t", "out"))
    assert Path("out/a.txt").read_text() == TRANSLATED


def test_a_restarted_job_replaces_outputs_also_if_it_is_interrupted(t: Path) -> None:
    Path("out.txt").write_text("old")
    job = job_of("t/a.txt", "out.txt")
    job.restart()
    job.open()
    translate(job, FakeServer())
    run(job_of("t/a.txt", "out.txt"))
    assert Path("out.txt").read_text() == TRANSLATED


class FullDisk(MemoryFileSystem):  # type: ignore[misc]
    """A file system on which a number of files can be written, and then no other."""

    protocol = "full"
    cachable = False
    num_left = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("full://", "memory://")))

    def _open(self, path: str, mode: str = "rb", **about: Any) -> Any:
        if mode == "wb":
            if not FullDisk.num_left:
                raise OSError(28, "No space left on device", path)
            FullDisk.num_left -= 1
            if not about["autocommit"]:  # as in a bucket, nothing is there until it is whole
                return MemoryFile(self, self._strip_protocol(path))
        return super()._open(path, mode, **about)


@pytest.fixture
def full() -> Iterator[str]:
    """The URL of a folder on a full disk."""
    fsspec.register_implementation("full", FullDisk, clobber=True)
    yield "full://place"
    Storage.of("memory://place").remove()


# The plan, ten parts and two outputs, each with a record, and the manifest.
NUM_WRITTEN = 1 + 2 * 10 + 2 * 2 + 1


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_that_is_interrupted_at_any_file_goes_on(t: Path, full: str, restarts: bool) -> None:
    for num_files in range(int(restarts), NUM_WRITTEN):
        job = job_of("t", f"{full}/out")
        if restarts:
            FullDisk.num_left = 1
            put(job.files[1].output, "old\n")
            job.restart()
        FullDisk.num_left = num_files
        with pytest.raises(OSError, match="No space left"):
            run(job)
        FullDisk.num_left = NUM_WRITTEN
        run(job_of("t", f"{full}/out"))
        for name, rows in (("a", ROWS), ("b", ROWS[:7])):
            content = Storage.of(f"{full}/out/{name}.txt").read()
            assert content == "".join(f"[{row}]\n" for row in rows).encode()
        Storage.of(full).remove()


def test_problems_of_an_interrupted_run_do_not_stay(t: Path, full: str) -> None:
    wrong = failure("INVALID_ARGUMENT", field="contents[0]", description="no")
    server = FakeServer(lambda texts: wrong if "row 0" in texts else None)
    FullDisk.num_left = NUM_WRITTEN - 1 + 2  # all but the manifest, and the problems
    with pytest.raises(OSError, match="No space left"):
        run(job_of("t", f"{full}/out"), server)
    problems = Storage.of(f"{full}/out.problems.jsonl")
    assert problems.exists()
    for name in ("00000-000000", "00001-000000"):
        Storage.of(f"{full}/out.dragoman-job/{name}.json").remove()
    FullDisk.num_left = NUM_WRITTEN
    assert run(job_of("t", f"{full}/out")) == (0, 0)
    assert not problems.exists()


@pytest.fixture
def bucket() -> Iterator[Storage]:
    """A bucket with two files of rows."""
    yield (place := Storage.of("memory://texts"))
    place.remove()


def put(place: Storage, content: str = SOURCE) -> None:
    place.write(lambda file: file.write(content.encode()))


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("memory://texts/in/a.txt", "memory://texts/in/a.txt"),
        ("memory://texts/in/a.txt", "memory://texts/in"),
        ("memory://texts/in/*.txt", "memory://texts/in/"),
        ("memory://texts/in", "memory://texts/in"),
        ("memory://texts/*/a.txt", "memory://texts"),
        ("memory://texts/**/*.txt", "memory://texts/out"),
    ],
)
def test_an_output_in_a_bucket_that_is_an_input_is_refused(
    bucket: Storage, source: str, output: str
) -> None:
    put(bucket / "in/a.txt")
    with pytest.raises(JobError, match=r"is the input|would be an input"):
        job_of(source, output)


def test_names_in_a_bucket_that_lead_out_of_the_output_are_refused(
    bucket: Storage, tmp_path: Path
) -> None:
    put(bucket / "in/../../a.txt")
    with pytest.raises(JobError, match="the output would not be in the folder of the outputs"):
        job_of("memory://texts/in", tmp_path / "out")


def test_a_name_with_an_asterisk_deletes_nothing_else(bucket: Storage) -> None:
    put(bucket / "a.txt")
    other = bucket / "outer.dragoman-job" / "plan.json"
    put(other)
    run(job_of("memory://texts/a.txt", "memory://texts/out*"))
    assert (bucket / "out*").read() == TRANSLATED.encode()
    assert not (bucket / "out*.dragoman-job").exists()
    assert other.exists()


def test_one_at_a_time_holds_a_lock_though_its_file_comes_and_goes(tmp_path: Path) -> None:
    place = Storage.of(str(tmp_path / "lock"))
    holders: list[int] = []

    def hold_often(number: int) -> None:
        for _ in range(300):
            with place.locked() as is_ours:
                if is_ours:
                    holders.append(number)
                    assert holders == [number]
                    holders.remove(number)

    in_parallel(hold_often, range(4))
    assert not (tmp_path / "lock").exists()

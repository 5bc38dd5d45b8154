"""Files of others that stay: in the places of outputs, beside them, and among the inputs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.batch.inputs import JobError
from cli.batch.storage import Storage
from cli.main import app
from tests.batch_jobs import ROWS, job_of, run, write_rows
from tests.fake_servers import FakeServer

TRANSLATED = "".join(f"[{row}]\n" for row in ROWS)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder t in the current one, with the files a.txt and deep/b.txt."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t" / "deep").mkdir(parents=True)
    write_rows(tmp_path / "t" / "a.txt")
    write_rows(tmp_path / "t" / "deep" / "b.txt")
    return tmp_path / "t"


def interrupt(*, restarts: bool = False) -> None:
    """End a job after its first output, out/a.txt: the second one has no folder."""
    Path("out").mkdir(exist_ok=True)
    Path("out/deep").write_text("a file")
    job = job_of("t", "out")
    if restarts:
        job.restart()
    with pytest.raises(OSError, match="deep"):
        run(job)
    Path("out/deep").unlink()
    assert Path("out/a.txt").read_text() == TRANSLATED
    assert not Path("out.manifest.json").exists()


def refuse_a_foreign_file_and_go_on_without_it() -> None:
    """Put a file that the job has not written in the place of an output; later remove it."""
    Path("out/deep/b.txt").write_text("precious")
    with pytest.raises(JobError, match=r"deep/b\.txt exists, and is not of this job"):
        run(job_of("t", "out"))
    assert Path("out/deep/b.txt").read_text() == "precious"
    Path("out/deep/b.txt").unlink()
    run(job_of("t", "out"))


@pytest.mark.parametrize("restarts", [False, True])
def test_an_interrupted_job_owns_the_outputs_that_it_has_written_and_no_others(
    source: Path, restarts: bool
) -> None:
    interrupt(restarts=restarts)
    Path("out/deep").mkdir()
    refuse_a_foreign_file_and_go_on_without_it()
    assert Path("out/deep/b.txt").read_text() == TRANSLATED


@pytest.mark.parametrize("restarts", [False, True])
def test_an_output_that_was_edited_after_an_interruption_is_kept(
    source: Path, restarts: bool
) -> None:
    interrupt(restarts=restarts)
    Path("out/a.txt").write_text("edited")
    with pytest.raises(JobError, match=r"out/a\.txt exists, and is not of this job"):
        run(job_of("t", "out"))
    assert Path("out/a.txt").read_text() == "edited"


def test_an_output_of_a_part_that_is_done_again_is_replaced(source: Path) -> None:
    interrupt()
    Path("out.dragoman-job/00000-000000.json").unlink()
    run(job_of("t", "out"), FakeServer(mark="new "))
    rows = [f"[new {row}]\n" for row in ROWS[:3]] + [f"[{row}]\n" for row in ROWS[3:]]
    assert Path("out/a.txt").read_text() == "".join(rows)


def test_a_restarted_job_replaces_what_was_there_and_nothing_later(source: Path) -> None:
    Path("out/deep").mkdir(parents=True)
    Path("out/a.txt").write_text("old")
    job = job_of("t", "out")
    job.restart()
    job.open()
    refuse_a_foreign_file_and_go_on_without_it()
    assert Path("out/a.txt").read_text() == TRANSLATED


def test_a_restart_forgets_nothing_before_it_has_read_its_inputs(source: Path) -> None:
    (source / "a.txt").rename(source / "a.csv")
    (source / "a.csv").write_text("text\na\n")
    run(job_of("t", "out"))
    (source / "a.csv").write_text('text\n"a\n')
    job = job_of("t", "out")
    job.restart()
    with pytest.raises(JobError, match=r"a\.csv: not CSV"):
        job.open()
    assert Path("out.manifest.json").exists()


def _write_precious(path: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("precious")


def test_no_link_or_file_is_in_the_way_of_a_file_that_is_being_written(source: Path) -> None:
    """Whatever its name: a job's unfinished files are new ones."""
    _write_precious("precious")
    for name in ("out.txt", "out.txt.manifest.json", "out.txt.dragoman-job/plan.json"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(f"{name}.dragoman-unfinished").symlink_to(Path("precious").absolute())
    _write_precious("out.txt.problems.jsonl.dragoman-unfinished")
    run(job_of("t/a.txt", "out.txt"))
    assert not Path("out.txt").is_symlink()
    assert Path("out.txt").read_text() == TRANSLATED
    for name in ("precious", "out.txt.problems.jsonl.dragoman-unfinished"):
        assert Path(name).read_text() == "precious"


def test_a_file_in_the_place_of_a_lock_is_kept(source: Path) -> None:
    lock = Path("out.txt.dragoman-lock")
    _write_precious("precious")
    makers: tuple[Callable[[], object], ...] = (
        lambda: _write_precious(str(lock)),
        lambda: lock.symlink_to("precious"),
        lambda: lock.symlink_to("nothing"),
        lambda: os.mkfifo(lock),
    )
    for make in makers:
        make()
        with (
            pytest.raises(OSError, match=r"out\.txt\.dragoman-lock"),
            job_of("t/a.txt", "out.txt").locked(),
        ):
            pass
        assert os.path.lexists(lock)
        lock.unlink()
    assert Path("precious").read_text() == "precious"
    assert not Path("nothing").exists()


@pytest.mark.parametrize("name", ["out/a.txt", "out.problems.jsonl", "out.manifest.json"])
def test_a_folder_in_the_place_of_a_file_is_kept(source: Path, name: str) -> None:
    _write_precious(f"{name}/file")
    with pytest.raises(JobError, match=rf"{name} is a folder"):
        job_of("t", "out").restart()
    assert Path(name, "file").read_text() == "precious"


def test_other_files_in_the_folder_of_the_parts_are_kept(source: Path) -> None:
    for name in ("notes.txt", "plan", "00000.part"):
        _write_precious(f"out.txt.dragoman-job/{name}")
    job = job_of("t/a.txt", "out.txt")
    job.restart()
    run(job)
    assert sorted(os.listdir("out.txt.dragoman-job")) == ["00000.part", "notes.txt", "plan"]


def test_a_folder_of_parts_that_is_a_link_is_emptied_where_it_is(source: Path) -> None:
    _write_precious("elsewhere/notes.txt")
    Path("out.txt.dragoman-job").symlink_to("elsewhere")
    run(job_of("t/a.txt", "out.txt"))
    assert os.listdir("elsewhere") == ["notes.txt"]


@pytest.mark.parametrize("restart", [(), ("--restart",)])
@pytest.mark.parametrize(
    ("output", "option", "path"),
    [
        ("out", "--glossary", "out/a.txt"),
        ("out", "--glossary", "out.problems.jsonl"),
        ("out", "--glossary", "out.manifest.json"),
        ("out", "--glossary", "out.dragoman-job/plan.json"),
        ("out", "--glossary", "link.txt"),
        ("out", "--bundle", "out/deep"),
        ("out", "--bundle", "out.dragoman-job"),
    ],
)
def test_files_of_other_options_are_inputs(
    source: Path, output: str, option: str, path: str, restart: tuple[str, ...]
) -> None:
    server = ("--server", "127.0.0.1:1") if option == "--glossary" else ()
    if option == "--bundle":
        Path(path).mkdir(parents=True)
    else:
        Path("out").mkdir()
        Path("out.dragoman-job").mkdir()
        Path(path).write_text("dog\tHund\n")
        if path == "link.txt":
            os.link(path, "out/a.txt")
    command = ["batch", "t", "--output", output, option, path, *restart, *server]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert "input" in done.output
    assert os.path.basename(path) in done.output or "out/a.txt" in done.output
    assert Path(path).is_dir() or Path(path).read_text() == "dog\tHund\n"


@pytest.mark.parametrize(
    ("source_url", "output"),
    [
        ("simplecache::file://{}/link/a.txt", "t/a.txt"),
        ("dir://a.txt::file://{}/t", "t/a.txt"),
        ("filecache::memory://texts/a.txt", "memory://texts/a.txt"),
        ("generic:{}/t/a.txt", "t/a.txt"),
        ("t/a.txt", "simplecache::file://{}/t/a.txt"),
        ("t/a.txt", "dir://a.txt::file://{}/link"),
    ],
)
def test_urls_that_hide_which_file_they_mean_are_refused(
    source: Path, tmp_path: Path, source_url: str, output: str
) -> None:
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(ValueError, match="is not supported"):
        job_of(source_url.format(tmp_path), output.format(tmp_path))


@pytest.mark.parametrize(
    "url", ["file://{}/link/a.txt", "local://{}/link/a.txt", "file:{}/t/a.txt"]
)
def test_local_urls_are_paths(source: Path, tmp_path: Path, url: str) -> None:
    (tmp_path / "link").symlink_to(source)
    assert Storage.of(url.format(tmp_path)).path == str(source / "a.txt")
    with pytest.raises(JobError, match="is the input"):
        job_of(url.format(tmp_path), "t/a.txt")


def test_a_job_with_fewer_inputs_leaves_the_outputs_of_the_others(source: Path) -> None:
    run(job_of("t", "out"))
    shutil.rmtree(source / "deep")
    job = job_of("t", "out")
    job.restart()
    run(job)
    assert Path("out/deep/b.txt").read_text() == TRANSLATED

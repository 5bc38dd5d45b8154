"""A job whose files were damaged ends with the right rows, or with an error that says so."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from cli.batch.inputs import JobError
from cli.batch.storage import Storage
from dragoman.client import TranslationError
from tests.batch_jobs import ROWS, job_of, run, run_one_part, translate, write_rows
from tests.fake_servers import FakeServer, failure
from tests.job_damage import damage

PART = "00000-000001"


def begin(source: Path, output: Path, num_calls: int, part_rows: int = 3, beam: int = 1) -> None:
    """Interrupt a job after a number of calls, of three rows each or in the end of two."""
    server = server_with(beam)
    server.fails = lambda texts: (
        failure("NOT_FOUND") if server.translated.total() >= 3 * num_calls - 1 else None
    )
    with pytest.raises(TranslationError):
        run(job_of(source, output, part_rows=part_rows, beam=beam), server)


def server_with(beam: int) -> FakeServer:
    """A server whose translations tell with which option they were made."""
    return FakeServer(mark=f"{beam} ")


def translated(rows: list[str], beam: int = 1) -> str:
    return "".join(f"[{beam} {row}]\n" for row in rows)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "in.txt")


@pytest.fixture
def state(source: Path, tmp_path: Path) -> Path:
    """The folder of an interrupted job from `source` to out.txt."""
    begin(source, tmp_path / "out.txt", 4)
    return tmp_path / "out.txt.dragoman-job"


@given(
    st.integers(0, 2**32),
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([3, 3, 7]), st.sampled_from([1, 1, 4]))),
)
@settings(max_examples=25)
def test_whatever_happens_to_its_files(
    seed: int, num_calls: int, runs: list[tuple[int, int, int]]
) -> None:
    """Several runs, with damage before each, with the same and with other options."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        source, output = write_rows(Path(directory, "in.txt")), Path(directory, "out.txt")
        others = write_rows(Path(directory, "others.txt"), [f"other {row}" for row in ROWS])
        begin(others, Path(directory, "others.out.txt"), 6)
        begin(source, output, num_calls)
        state = Path(directory, "out.txt.dragoman-job")
        other = Path(directory, "others.out.txt.dragoman-job")
        for num_damaged, part_rows, beam in [*runs, (0, 3, 1)]:
            for _ in range(num_damaged):
                note(damage(rng, state, other))
            job = job_of(source, output, part_rows=part_rows, beam=beam)
            try:
                run(job, server_with(beam))
            except JobError as exc:
                note(str(exc))
                assert not output.exists()
            else:
                assert output.read_text() == translated(ROWS, beam)
                assert not state.exists()
                return
        job = job_of(source, output, part_rows=7, beam=4)
        job.restart()
        run(job, server_with(4))
        assert output.read_text() == translated(ROWS, 4)
        assert source.read_text() == "".join(f"{row}\n" for row in ROWS)


@pytest.mark.parametrize("content", ["", "{", "{}", "null", "[]", '{"inputs": []}'])
def test_a_plan_that_is_lost_is_made_again_and_its_parts_are_kept(
    source: Path, state: Path, tmp_path: Path, content: str
) -> None:
    (state / "plan.json").write_text(content)
    server = server_with(1)
    run(job_of(source, tmp_path / "out.txt", beam=1), server)
    assert (tmp_path / "out.txt").read_text() == translated(ROWS)
    assert "row 0" not in server.translated


@pytest.mark.parametrize("is_missing", [False, True])
@pytest.mark.parametrize(("part_rows", "beam"), [(7, 1), (3, 4)])
def test_without_their_plan_parts_are_not_those_of_another(
    source: Path, state: Path, tmp_path: Path, is_missing: bool, part_rows: int, beam: int
) -> None:
    (state / "plan.json").unlink() if is_missing else (state / "plan.json").write_text("{")
    job = job_of(source, tmp_path / "out.txt", part_rows=part_rows, beam=beam)
    with pytest.raises(JobError, match=r"has parts of a plan that is lost, of other .*--restart"):
        run(job, server_with(beam))
    run(job_of(source, tmp_path / "out.txt", beam=1), server_with(1))
    assert (tmp_path / "out.txt").read_text() == translated(ROWS)


def _of_another_part(state: Path) -> None:
    shutil.copy(state / "00000-000000.json", state / f"{PART}.json")


def _with_another_extent(state: Path) -> None:
    record = json.loads((state / f"{PART}.json").read_text())
    record["extent"]["rows"] = 2
    (state / f"{PART}.json").write_text(json.dumps(record))


def _of_the_plan(state: Path) -> None:
    shutil.copy(state / "plan.json", state / f"{PART}.json")


def _content(content: str) -> Callable[[Path], None]:
    return lambda state: (state / f"{PART}.json").write_text(content)  # type: ignore[return-value]


@pytest.mark.parametrize(
    "change",
    [
        *(_content(each) for each in ("", "{", "{}", "[]", '{"rows": 3, "sha256": ""}')),
        *(_of_another_part, _with_another_extent, _of_the_plan),
    ],
)
def test_a_part_with_a_wrong_record_is_done_again(
    source: Path, state: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    change(state)
    server = server_with(1)
    run(job_of(source, tmp_path / "out.txt", beam=1), server)
    assert (tmp_path / "out.txt").read_text() == translated(ROWS)
    assert {"row 3", "row 4", "row 5"} <= server.translated.keys()
    assert "row 0" not in server.translated


@pytest.mark.parametrize("content", [None, b"", b"[1 row 3]\n", b"[1 row 9]\n" * 3])
def test_a_part_with_other_content_is_found_at_the_end_and_done_again(
    source: Path, state: Path, tmp_path: Path, content: bytes | None
) -> None:
    part = state / f"{PART}.part"
    part.unlink() if content is None else part.write_bytes(content)
    with pytest.raises(JobError, match=rf"{PART}\.part is damaged; the same command does this"):
        run(job_of(source, tmp_path / "out.txt", beam=1), server_with(1))
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.txt.dragoman-job"]
    server = server_with(1)
    run(job_of(source, tmp_path / "out.txt", beam=1), server)
    assert (tmp_path / "out.txt").read_text() == translated(ROWS)
    assert set(server.translated) == {"row 3", "row 4", "row 5"}


def test_a_part_that_vanishes_during_the_job_is_an_error(source: Path, tmp_path: Path) -> None:
    job = job_of(source, tmp_path / "out.txt")
    run_one_part(job)
    with pytest.raises(JobError, match="00000-000001 is missing or damaged; the same command"):
        job.finish()


@pytest.mark.parametrize("content", ["", "{}", '{"failed": 0}', "7"])
def test_a_damaged_manifest_is_no_finished_job(source: Path, tmp_path: Path, content: str) -> None:
    run(job_of(source, tmp_path / "out.txt"))
    (tmp_path / "out.txt.manifest.json").write_text(content)
    with pytest.raises(JobError, match=r"manifest\.json is damaged, or no dragoman batch manifest"):
        job_of(source, tmp_path / "out.txt").open()


def test_an_output_that_has_changed_is_no_finished_job(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    run(job_of(source, output))
    content = output.read_text()
    output.unlink()
    output.write_text(content)  # another file with the same content
    assert job_of(source, output).open() == 0
    output.write_text(content[:-1])
    with pytest.raises(JobError, match=r"out\.txt has changed since the job ended"):
        job_of(source, output).open()


@pytest.fixture
def bucket() -> Iterator[str]:
    """A bucket, in which there is no lock."""
    yield "memory://texts"
    Storage.of("memory://texts").remove()


def test_two_jobs_at_once_in_one_place_of_a_bucket_do_not_mix(source: Path, bucket: str) -> None:
    place = f"{bucket}/out.txt"
    one, two = (job_of(source, place, beam=beam) for beam in (1, 4))
    for job in (one, two):
        job.open()
    translate(two, server_with(4))
    translate(one, server_with(1))
    with pytest.raises(JobError, match="00000-000000 is missing or damaged"):
        two.finish()
    assert one.finish() == (0, 0)
    assert Storage.of(place).read() == translated(ROWS).encode()
    with pytest.raises(JobError, match="is of a job with other options"):
        run(job_of(source, place, beam=4), server_with(4))


def test_the_same_job_twice_at_once_in_a_bucket_is_right_once(source: Path, bucket: str) -> None:
    place = f"{bucket}/out.txt"
    one, two = (job_of(source, place, beam=1) for _ in range(2))
    for job in (one, two):
        job.open()
        translate(job, server_with(1))
    one.finish()
    with pytest.raises(JobError, match="is missing or damaged"):
        two.finish()
    assert Storage.of(place).read() == translated(ROWS).encode()
    assert job_of(source, place, beam=1).open() == 0

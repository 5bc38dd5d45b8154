"""Inputs of a job: none is passed over in silence, and none is read in part."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cli.batch.inputs import InputFile, JobError, find_inputs
from cli.batch.storage import Storage
from tests.batch_jobs import job_of, run


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder t in the current one, with the file a.txt."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a.txt").write_text("A\n")
    return tmp_path / "t"


def find(source: str, format: str = "") -> tuple[list[InputFile], list[str]]:
    """The inputs, and the paths of the files that are skipped."""
    skipped: list[str] = []

    def on_skipped(paths: Sequence[str]) -> None:
        skipped.extend(os.path.relpath(path) for path in paths)

    return find_inputs(source, Storage.of("out"), format, on_skipped=on_skipped), skipped


@pytest.mark.parametrize("format", ["", "text"])
@pytest.mark.parametrize("target", ["more", "t", "."])
@pytest.mark.parametrize("source", ["t", "t/**/*.txt", "t/*/*.txt", "t/**"])
def test_a_link_to_a_folder_is_refused_by_name(
    texts: Path, source: str, target: str, format: str
) -> None:
    """It would be passed over, or lead in circles."""
    (texts.parent / "more").mkdir()
    (texts.parent / "more" / "b.txt").write_text("B\n")
    (texts / "link").symlink_to(texts.parent / target)
    with pytest.raises(JobError, match="t/link is a link to a folder"):
        find(source, format)
    found, skipped = find("t/*.txt")  # which means nothing in the link
    assert [file.storage.name for file in found] == ["a.txt"]
    assert not skipped
    if target == "more":
        assert [file.storage.name for file in find("t/link")[0]] == ["b.txt"]


@pytest.mark.parametrize("source", ["t", "t/*.txt"])
def test_a_link_to_nothing_is_an_error(texts: Path, source: str) -> None:
    (texts / "b.txt").symlink_to("nothing")
    with pytest.raises(FileNotFoundError, match=r"t/b\.txt"):
        run(job_of(source, "out"))


@pytest.mark.parametrize("source", ["t", "t/*.txt"])
def test_a_pipe_is_an_error(texts: Path, source: str) -> None:
    os.mkfifo(texts / "b.txt")
    with pytest.raises(JobError, match=r"t/b\.txt is neither a file nor a folder"):
        job_of(source, "out")


def test_files_that_are_skipped_are_told(texts: Path) -> None:
    for name in ("_part0.txt", ".hidden.txt", "image.png", "b.txt.zip"):
        (texts / name).write_bytes(b"")
    assert find("t")[1] == ["t/.hidden.txt", "t/_part0.txt", "t/b.txt.zip", "t/image.png"]
    assert find("t/*.txt")[1] == ["t/.hidden.txt", "t/_part0.txt"]
    assert find("t/a.txt")[1] == []


def test_a_folder_may_have_the_name_of_a_pattern(texts: Path) -> None:
    texts.rename("x[1]")
    run(job_of("x[1]", "out"))
    assert Path("out/a.txt").read_text() == "[A]\n"


@pytest.mark.parametrize("suffix", [".zip", ".zst", ".lz4", ".lzma", ".ZIP"])
def test_compressions_that_would_lose_rows_are_refused(texts: Path, suffix: str) -> None:
    name = f"t/b.txt{suffix}"
    with zipfile.ZipFile(name, "w") as archive:
        for member in "xy":
            archive.writestr(f"{member}.txt", f"{member}\n")
    for source, format in ((name, ""), (name, "text"), ("t/b*", ""), ("t", "text")):
        with pytest.raises(JobError, match=r"unsupported compression: expected \.gz, \.bz2 or"):
            find(source, format)
    with pytest.raises(JobError, match="unsupported compression"):
        job_of("t/a.txt", f"out.txt{suffix}")


@pytest.mark.parametrize(
    ("suffix", "module"), [(".gz", gzip), (".bz2", bz2), (".xz", lzma), (".GZ", gzip)]
)
def test_compressed_files_are_read_to_their_end(texts: Path, suffix: str, module: Any) -> None:
    """Files of several streams too."""
    content = module.compress(b"one\n") + module.compress(b"two\n")
    (texts / f"b.txt{suffix}").write_bytes(content)
    run(job_of(f"t/b.txt{suffix}", f"out.txt{suffix}"))
    written = Path(f"out.txt{suffix}").read_bytes()
    assert module.decompress(written) == b"[one]\n[two]\n"

"""No command writes to what it reads, and what it writes is whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.output_files import write_whole


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files that commands read, and a bundle."""
    monkeypatch.chdir(tmp_path)
    for name in ("in.txt", "ref.txt", "terms.txt", "replica.json", "ca.svg"):
        (tmp_path / name).write_text("A dog.\tEin Hund.\n")
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "bundle.json").write_text("{}")
    os.link(tmp_path / "in.txt", tmp_path / "same.txt")
    (tmp_path / "link.txt").symlink_to("in.txt")
    return tmp_path


EVALUATE = ("evaluate", "--model", "bundle", "--source", "in.txt", "--reference", "ref.txt")
PLAN = ("plan", "--texts", "in.txt", "--rate", "5", "--p99", "1s")
FILE = ("translate-file", "in.txt", "--to", "de", "--glossary", "terms.txt")
BATCH = ("batch", "in.txt", "--restart", "--to", "de", "--glossary", "terms.txt")


@pytest.mark.parametrize(
    ("command", "output"),
    [
        *((EVALUATE, f"--output {name}") for name in ("in.txt", "./ref.txt", "link.txt")),
        (EVALUATE, "--output same.txt"),
        (EVALUATE, "--output bundle/bundle.json"),
        (EVALUATE, "--output bundle/../bundle/new.txt"),
        (PLAN, "--output in.txt"),
        (PLAN, "--picture same.txt"),
        (PLAN, "--output new.json --picture ./new.json"),
        (("plan", "--replica", "replica.json", "--rate", "5"), "--picture replica.json"),
        (("attention", "A dog.", "--ca", "ca.svg"), "--output ca.svg"),
        (("memory", "export", "all", "--ca", "in.txt"), "--output link.txt"),
        (FILE, "--output terms.txt"),
        (FILE, "--output same.txt"),
        (BATCH, "--output terms.txt"),
        (BATCH, "--output in.txt"),
        ((*BATCH, "--bundle", "bundle"), "--output bundle/bundle.json"),
    ],
)
def test_no_command_writes_to_its_inputs(
    folder: Path, command: tuple[str, ...], output: str
) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}
    done = CliRunner().invoke(app, [*command, *output.split()])
    assert done.exit_code == 1, done.output
    reasons = ("is an input of", "is the input", "lies in a model", "is written twice")
    assert any(reason in done.output for reason in reasons), done.output
    assert {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()} == before


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    def fails() -> Iterator[bytes]:
        yield b"half"
        raise OSError("no more")

    file = tmp_path / "out.txt"
    file.write_text("old")
    with pytest.raises(OSError, match="no more"):
        write_whole(file, fails())
    assert file.read_text() == "old"
    write_whole(file, [b"n", b"ew"])
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.txt", "new")]


def test_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    for mode in (0o600, 0o640, 0o666):
        (file := tmp_path / "out.txt").write_text("old")
        file.chmod(mode)
        write_whole(file, [b"new"])
        assert (file.read_text(), file.stat().st_mode & 0o7777) == ("new", mode)


@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_a_link_stays_one(tmp_path: Path, make: Callable[[Path, Path], None]) -> None:
    (tmp_path / "file.txt").write_text("old")
    make(tmp_path / "file.txt", tmp_path / "link.txt")
    write_whole(tmp_path / "link.txt", [b"new"])
    assert (tmp_path / "link.txt").read_text() == "new"
    assert (tmp_path / "link.txt").is_symlink() == (make is os.symlink)


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    read, write = os.pipe()
    write_whole(Path(f"/dev/fd/{write}"), [b"new"])
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"new"

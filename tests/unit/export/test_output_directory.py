"""A directory of an export takes its place whole, and the place of nothing foreign."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from export.errors import ExportError
from export.output_directory import check_output, check_unused, new_directory


def test_the_old_bundle_is_back_if_the_new_one_can_not_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_directory(tmp_path / "bundle") as directory:
        (directory / "bundle.json").write_text("{}")
    rename = os.replace

    def refuse(source: Path, target: Path) -> None:
        if source == directory:
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no"), new_directory(tmp_path / "bundle") as directory:
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    assert (tmp_path / "bundle" / "bundle.json").read_text() == "{}"


@pytest.mark.parametrize("check", [check_output, check_unused])
@pytest.mark.parametrize("begins_empty", [False, True])
def test_what_appears_during_an_export_is_not_replaced(
    tmp_path: Path, check: Callable[[Path], None], begins_empty: bool
) -> None:
    output = tmp_path / "out"
    if begins_empty:
        output.mkdir()

    def export() -> None:
        with new_directory(output, check) as made:
            (made / "bundle.json").write_text("{}")
            output.mkdir(exist_ok=True)
            (output / "precious.txt").write_text("precious")

    with pytest.raises(ExportError, match="is in the way"):
        export()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in output.iterdir()] == ["precious.txt"]


def test_of_two_exports_into_a_new_directory_the_second_is_refused(tmp_path: Path) -> None:
    output = tmp_path / "out"

    def export(content: str, meanwhile: Callable[[], None]) -> None:
        with new_directory(output, check_unused) as made:
            (made / "bundle.json").write_text(content)
            meanwhile()

    with pytest.raises(ExportError, match="is in the way"):
        export("late", lambda: export("{}", lambda: None))
    assert (output / "bundle.json").read_text() == "{}"


@pytest.mark.parametrize("check", [check_output, check_unused])
def test_the_current_directory_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path("."), tmp_path, Path("/proc")):
        with pytest.raises(ExportError):
            check(path)
    with pytest.raises(ExportError, match="is the current directory or a mount"):
        check(Path("."))


def test_a_link_to_a_bundle_stays_one(tmp_path: Path) -> None:
    (link := tmp_path / "link").symlink_to(tmp_path / "bundle")
    for content in ("{}", '{"sha256": {}}'):
        with new_directory(link) as directory:
            (directory / "bundle.json").write_text(content)
        assert (tmp_path / "bundle" / "bundle.json").read_text() == content
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "link"]

"""The store of pulled models."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from export.errors import ExportError
from export.output_directory import UNFINISHED, new_directory
from export.store.model_store import ModelStore, default_directory
from model.bundle.manifest import MANIFEST_FILE


def write_bundle(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / MANIFEST_FILE).write_text("{}")


def test_the_usual_directory() -> None:
    assert default_directory({"XDG_CACHE_HOME": "/var/cache"}) == Path("/var/cache/dragoman")
    home = Path.home() / ".cache" / "dragoman"
    assert default_directory({}) == default_directory({"XDG_CACHE_HOME": "relative"}) == home


def test_bundles_are_found_by_any_spelling_of_their_pair(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    assert store.bundles() == []
    write_bundle(tmp_path / "en-zh-Hant")
    write_bundle(tmp_path / ".en-de.x8k2")  # half-written
    (tmp_path / "en-de").mkdir()  # no bundle
    assert store.bundles() == [tmp_path / "en-zh-Hant"]
    assert store.find("EN-zh_hant") == tmp_path / "en-zh-Hant"
    assert store.find("en-de") is None
    write_bundle(tmp_path / "NORTH_EU-en")  # as OPUS-MT calls a group of languages
    assert store.find("NORTH_EU-en") == tmp_path / "NORTH_EU-en"
    with pytest.raises(ExportError, match="is no pair of languages"):
        store.find("../en-de")


def test_a_damaged_manifest_is_none(tmp_path: Path) -> None:
    write_bundle(tmp_path / "en-de")
    for content in ("[", "[]"):
        (tmp_path / "en-de" / MANIFEST_FILE).write_text(content)
        assert ModelStore(tmp_path).manifest("en-de") == {}


def test_one_at_a_time_holds_the_lock_of_a_pair(tmp_path: Path) -> None:
    waits, entered = threading.Event(), threading.Event()
    store = ModelStore(tmp_path / "new")

    def enter() -> None:
        with store.locked("en-de", waits.set):
            entered.set()

    with store.locked("en-de", lambda: None), store.locked("en-fr", lambda: None):
        second = threading.Thread(target=enter)
        second.start()
        assert waits.wait(60)
        assert not entered.is_set()
    second.join(60)
    assert entered.is_set()


def test_the_next_pull_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    write_bundle(tmp_path / f".en-de.{UNFINISHED}.x8k2")
    write_bundle(tmp_path / f".en-de-x.{UNFINISHED}.abcd")
    write_bundle(tmp_path / ".en-de.backup")  # made by hand
    with ModelStore(tmp_path).locked("en-de", lambda: None):
        left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [f".en-de-x.{UNFINISHED}.abcd", ".en-de.backup", ".pulls"]


def test_an_old_bundle_that_a_killed_pull_moved_away_comes_back(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    write_bundle(tmp_path / f".en-de.{UNFINISHED}.x8k2.old")
    write_bundle(tmp_path / f".en-de.{UNFINISHED}.x8k2")
    with store.locked("en-de", lambda: None):
        assert store.find("en-de") == tmp_path / "en-de"
    write_bundle(tmp_path / f".en-de.{UNFINISHED}.abcd.old")
    with store.locked("en-de", lambda: None):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".pulls", "en-de"]


@pytest.mark.parametrize("is_killed_later", [False, True])
def test_what_is_removed_is_what_an_export_leaves(tmp_path: Path, is_killed_later: bool) -> None:
    """The directories of an export have the names that the store looks for."""
    store = ModelStore(tmp_path)
    with new_directory(store.bundle("en-de")) as directory:
        (directory / MANIFEST_FILE).write_text("{}")
        unfinished = [path.name for path in tmp_path.iterdir()]
    (tmp_path / unfinished[0]).mkdir()
    if is_killed_later:
        store.bundle("en-de").rename(tmp_path / f"{unfinished[0]}.old")
    with store.locked("en-de", lambda: None):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".pulls", "en-de"]


def test_looking_up_needs_no_torch() -> None:
    program = (
        "import sys; import cli.stored_models, export.store.model_store, export.store.registry; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

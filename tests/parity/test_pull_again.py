"""A pull of a model that is here: nothing, or again where it is damaged or the list has changed."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import export.store.pull
from export.store.mirror import mirror_of
from export.store.model_store import ModelStore
from export.store.pull import PullOptions, pull_published
from export.store.registry import choose, fetch_registry
from model.bundle.bundle import Bundle
from tests.mirrors import MODEL, MirrorServer
from tests.pulls import files, pull


def test_the_same_model_is_not_pulled_again(pulled: tuple[Path, str], server: MirrorServer) -> None:
    store, _ = pulled
    before = (store / "en-de" / "bundle.json").stat().st_mtime_ns
    result = pull(store, server.url, "EN_de", "--type", "tiny")
    assert "en-de: here already, and the newest" in result.output
    assert server.ranges == {"/db/models.json": [None]}
    assert (store / "en-de" / "bundle.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_damaged_bundle_is_pulled_again(
    pulled: tuple[Path, str],
    tmp_path: Path,
    mirror: Path,
    damage: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shutil.copytree(pulled[0], store := tmp_path / "store")
    weights = store / "en-de" / "weights.bin"
    right = weights.read_bytes()
    if damage == "missing":
        weights.unlink()
    else:
        weights.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    result = pull(store, mirror, "en-de", "--type", "tiny")
    assert result.exit_code == 0, result.output
    assert "en-de: the model here can't be used, and is pulled again" in caplog.text
    assert str(weights) in caplog.text
    assert weights.read_bytes() == right
    Bundle.load(store / "en-de")


def test_what_is_in_the_way_is_said_before_a_download(
    pulled: tuple[Path, str], tmp_path: Path, server: MirrorServer
) -> None:
    shutil.copytree(pulled[0], store := tmp_path / "store")
    (store / "en-de" / "bundle.json").write_text("[")
    result = pull(store, server.url, "en-de", "--type", "tiny")
    assert result.exit_code == 1
    assert "is in the way" in result.output
    assert list(server.ranges) == ["/db/models.json"]


def test_a_mended_vocabulary_is_pulled(
    pulled: tuple[Path, str], tmp_path: Path, mirror: Path
) -> None:
    """The model's own hash stays: the list has one of the vocabulary, or names another file."""
    shutil.copytree(pulled[0], store := tmp_path / "store")
    shutil.copytree(mirror, changed := tmp_path / "mirror")
    list_file = changed / "db" / "models.json"
    fields = json.loads(list_file.read_text())
    described = fields["models"]["en-de"][0]["files"]
    old = changed / described["vocab"]["path"]
    content = gzip.decompress(old.read_bytes())

    def again(**vocabulary: str) -> str:
        described["vocab"] |= vocabulary
        list_file.write_text(json.dumps(fields))
        result = pull(store, changed, "en-de", "--type", "tiny")
        assert result.exit_code == 0, result.output
        return result.output

    right = hashlib.sha256(content).hexdigest()
    assert "here already" in again(uncompressedHash=right)
    mended = content + b"\xa0\x06\x01"  # a field that no reader knows
    old.write_bytes(gzip.compress(mended))
    assert "here already" not in again(uncompressedHash=hashlib.sha256(mended).hexdigest())
    made_from = ModelStore(store).manifest("en-de")["provenance"]["imported_from"]
    assert hashlib.sha256(mended).hexdigest() in made_from["files"].values()
    del described["vocab"]["uncompressedHash"]
    assert "here already" in again()
    shutil.copytree(old.parent, old.parent.with_name("mended"))
    path = Path(described["vocab"]["path"])
    assert "here already" not in again(path=str(path.parent.with_name("mended") / path.name))


def test_after_any_error_of_an_import_a_file_without_a_hash_is_fetched_anew(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise IndexError  # of a reader that a foreign file surprised

    monkeypatch.setattr(export.store.pull, "import_directory", fails)
    model = choose(fetch_registry(mirror_of(str(mirror))), "de-en", None)
    nothing = lambda _: nullcontext(lambda *_: None)  # noqa: E731
    with pytest.raises(IndexError):
        pull_published(
            model, mirror_of(str(mirror)), ModelStore(tmp_path / "store"), PullOptions(), nothing
        )
    assert files(tmp_path / "store") == {f"{MODEL}.gz"}

"""Models are pulled from a mirror, proven, and served by their pairs."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import resource
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.stored_models import bundles_of
from dragoman.client import AsyncClient
from export.store.mirror import mirror_of
from export.store.model_store import ModelStore
from export.store.pull import Pulled, PullOptions, pull_hub, pull_published
from export.store.registry import choose, fetch_registry
from model.bundle.bundle import Bundle
from service.errors import StartupError
from tests.foreign_models import marian
from tests.integration.servers import server_process
from tests.mirrors import MODEL, MirrorServer
from tests.pulls import files, pull


@contextlib.contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """No file can be larger: writing fails as on a disk without room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_bundle_says_where_it_is_from(pulled: tuple[Path, str], mirror: Path) -> None:
    store, output = pulled
    bundle = Bundle.load(store / "en-de")
    assert (bundle.name, bundle.version[:5], bundle.precision) == ("en-de", "tiny-", "int8")
    entry = json.loads((mirror / "db" / "models.json").read_text())["models"]["en-de"][0]
    model = entry["files"]["model"]
    made_from = bundle.manifest["provenance"]["imported_from"]
    assert {
        name: made_from[name] for name in ("url", "revision", "license", "type", "release")
    } == {
        "url": model["path"],
        "revision": model["uncompressedHash"],
        "license": "MPL-2.0",
        "type": "tiny",
        "release": "Release",
    }
    assert bundle.manifest["provenance"]["proof"]["num_sentences"] == 2
    assert bundle.origin.startswith(f"imported from {model['path']} (Marian student")
    assert bundle.origin.endswith("licence MPL-2.0)")
    assert f"Serve it: dragoman serve en-de --models-dir {store}\n" in output
    assert files(store / ".pulls") == set()


def test_interrupted_then_another_type_in_its_place(
    pulled: tuple[Path, str], tmp_path: Path, server: MirrorServer
) -> None:
    """A connection that breaks in each file, over HTTP; a bundle of the pair is replaced."""
    shutil.copytree(pulled[0], tmp_path / "store")
    server.cuts = {f"{MODEL}.gz": [70_000], "vocab.ende.spm.gz": [66_000]}
    result = pull(tmp_path / "store", server.url, "en-de")
    assert result.exit_code == 0, result.output
    bundle = Bundle.load(tmp_path / "store" / "en-de")
    assert bundle.version.startswith("base-memory-")
    url = f"{server.url}/models/en-de/base-memory_AbC/exported/{MODEL}.gz"
    assert bundle.origin.startswith(f"imported from {url} (")
    assert server.asked(f"/{MODEL}.gz") == [None, "bytes=70000-"]
    assert server.asked("/vocab.ende.spm.gz") == [None, "bytes=66000-"]


def test_a_wrong_hash_names_the_file_and_both_hashes(tmp_path: Path, mirror: Path) -> None:
    shutil.copytree(mirror, tmp_path / "mirror")
    file = tmp_path / "mirror" / f"models/de-en/tiny_AbC/exported/{MODEL}.gz"
    content = gzip.decompress(file.read_bytes())
    file.write_bytes(gzip.compress(content[:-1] + b"!"))
    result = pull(tmp_path / "store", tmp_path / "mirror", "de-en")
    assert result.exit_code == 1
    wrong, right = (hashlib.sha256(each).hexdigest() for each in (content[:-1] + b"!", content))
    line = result.output.strip().splitlines()[-1]
    assert f"tiny_AbC/exported/{MODEL}.gz is damaged" in line
    assert f"its SHA-256 is {wrong}, not {right}; it was removed" in line
    assert files(tmp_path / "store") == set()


def test_a_damaged_vocabulary_is_fetched_anew(tmp_path: Path, mirror: Path) -> None:
    """The list has no hash of it, so that only the import finds it."""
    shutil.copytree(mirror, tmp_path / "mirror")
    file = tmp_path / "mirror" / "models/de-en/tiny_AbC/exported/vocab.ende.spm.gz"
    right = file.read_bytes()
    file.write_bytes(gzip.compress(b"something else"))
    failed = pull(tmp_path / "store", tmp_path / "mirror", "de-en")
    assert failed.exit_code == 1
    assert "vocab.ende.spm.gz is not a SentencePiece model" in failed.output
    assert files(tmp_path / "store") == {f"{MODEL}.gz"}  # its hash is right
    file.write_bytes(right)
    result = pull(tmp_path / "store", tmp_path / "mirror", "de-en")
    assert result.exit_code == 0, result.output
    Bundle.load(tmp_path / "store" / "de-en")


def test_a_bomb_is_not_unpacked(tmp_path: Path, mirror: Path) -> None:
    shutil.copytree(mirror, tmp_path / "mirror")
    file = tmp_path / "mirror" / "models/de-en/tiny_AbC/exported/vocab.ende.spm.gz"
    file.write_bytes(gzip.compress(bytes(2**26 + 1)))
    result = pull(tmp_path / "store", tmp_path / "mirror", "de-en")
    assert "vocab.ende.spm.gz holds more than" in result.output
    assert "vocab.ende.spm.gz" not in files(tmp_path / "store")


def test_a_file_that_is_missing(tmp_path: Path, server: MirrorServer) -> None:
    server.statuses = {"vocab.ende.spm.gz": [404]}
    result = pull(tmp_path, server.url, "de-en")
    assert result.exit_code == 1
    url = f"{server.url}/models/de-en/tiny_AbC/exported/vocab.ende.spm.gz"
    assert f"dragoman: {url}: the server answers 404 Not Found" in result.output
    assert files(tmp_path) == {f"{MODEL}.gz"}  # whole: it is not downloaded again


@pytest.mark.parametrize(("room", "kept"), [(100_000, 0), (200_000, 3)])
def test_without_room_nothing_is_half_written(
    tmp_path: Path, server: MirrorServer, room: int, kept: int
) -> None:
    """In the download, and in the import, whose downloads are kept."""
    with largest_file(room):
        result = pull(tmp_path, server.url, "de-en")
    assert result.exit_code == 1
    assert "File too large" in result.output
    assert "Traceback" not in result.output
    assert len(files(tmp_path)) == kept
    assert ModelStore(tmp_path).bundles() == []


def test_two_pulls_at_once_make_one_download(tmp_path: Path, server: MirrorServer) -> None:
    store, mirror = ModelStore(tmp_path), mirror_of(server.url)
    model = choose(fetch_registry(mirror), "de-en", None)
    options = PullOptions(num_sentences=0)

    def one() -> Pulled:
        return pull_published(model, mirror, store, options, lambda _: nullcontext(lambda *_: None))

    with ThreadPoolExecutor(2) as pool:
        both = [future.result() for future in [pool.submit(one), pool.submit(one)]]
    assert sorted(pulled.imported is None for pulled in both) == [False, True]
    assert len(server.asked(f"/{MODEL}.gz")) == 1
    Bundle.load(tmp_path / "de-en")


def test_one_failure_does_not_keep_others_from_being_pulled(
    pulled: tuple[Path, str], server: MirrorServer
) -> None:
    store, _ = pulled
    server.statuses = {f"{MODEL}.gz": [404]}
    result = pull(store, server.url, "en-fr", "en-de", "--type", "tiny")
    assert result.exit_code == 1
    assert "404" in result.output
    assert "en-de: here already" in result.output


def test_a_bad_precision_is_refused_before_the_hub_is_asked(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app,
        ["pull", "en-de", "--from=opus", "--precision=int4", f"--models-dir={tmp_path / 'store'}"],
    )
    assert "precision must be one of" in result.output
    assert not (tmp_path / "store").exists()


def test_an_opus_model_by_its_name(tmp_path: Path) -> None:
    marian(tmp_path / "c0ffee")
    (tmp_path / "c0ffee" / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    asked = []

    def locate(name: str) -> tuple[Path, dict[str, Any]]:
        asked.append(name)
        return tmp_path / "c0ffee", {"hub": name, "revision": "c0ffee"}

    store, options = ModelStore(tmp_path / "store"), PullOptions(num_sentences=0)
    nothing = lambda _: nullcontext(lambda *_: None)  # noqa: E731
    made = pull_hub("en-de", locate, store, options, nothing)
    again = pull_hub("en-de", locate, store, options, nothing)
    assert asked == ["Helsinki-NLP/opus-mt-en-de"] * 2
    assert made.imported is not None
    assert again.imported is None
    bundle = Bundle.load(tmp_path / "store" / "en-de")
    assert (bundle.name, bundle.version) == ("en-de", "opus-c0ffee")
    assert bundle.directions.first == ("en", "de")
    assert bundle.origin.startswith("imported from Helsinki-NLP/opus-mt-en-de (MarianMT")
    assert "licence apache-2.0" in bundle.origin


def test_the_list(pulled: tuple[Path, str], mirror: Path) -> None:
    result = pull(pulled[0], mirror, "--list", "de", "--type", "tiny")
    rows = [line.split() for line in result.output.splitlines()]
    assert rows[0] == ["pair", "type", "release", "size", "COMET", "here"]
    assert [(*row[:3], row[-1]) for row in rows[1:]] == [
        ("de-en", "tiny", "Release", "yes"),
        ("en-de", "tiny", "Release", "yes"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a pair of languages"),
        (["de-fr"], "two translate it through English: de-en en-fr"),
        (["--all", "ja"], "no released model from or into 'ja'"),
        (["en-de", "--from", "hub"], "--from: must be mozilla or opus"),
        (["en-de", "--precision", "int4"], "precision must be one of"),
    ],
)
def test_other_wishes_are_refused(
    tmp_path: Path, mirror: Path, arguments: list[str], message: str
) -> None:
    result = pull(tmp_path / "store", mirror, *arguments)
    assert result.exit_code in (1, 2)
    assert message in result.output
    assert "Traceback" not in result.output


async def test_served_by_pairs(tmp_path: Path, pulled: tuple[Path, str], mirror: Path) -> None:
    """The server pulls what is missing, and translates German to French through English."""
    shutil.copytree(pulled[0], tmp_path / "store")
    options = ("--models-dir", tmp_path / "store", "--models-url", mirror, "--pull")
    async with server_process("de-en", "en-fr", *options) as server:
        client = AsyncClient(server.address)
        found = {(m.name, m.version.partition("-")[0]) for m in await client.list_models()}
        assert found == {("de-en", "tiny"), ("en-fr", "tiny")}
        groups = [
            (g.source_languages, g.target_languages, g.pivot_language)
            for g in await client.list_languages()
        ]
        assert (("de",), ("fr",), "en") in groups
        batch = await client.translate(["a text"], source="de", target="fr")
        assert (batch.pivot_model, batch.model) == ("de-en", "en-fr")
        await client.close()


def test_a_missing_pair_says_what_to_type(tmp_path: Path, pulled: tuple[Path, str]) -> None:
    with pytest.raises(StartupError) as caught:
        bundles_of(["en-de", "en-ja"], pulled[0], "", pulls=False)
    assert str(caught.value) == (
        f"there is no model for en-ja in {pulled[0]}: get it with `dragoman pull en-ja "
        f"--models-dir {pulled[0]}`, or serve with --pull"
    )
    assert bundles_of(["EN-de", "en_de"], pulled[0], "", pulls=False) == [pulled[0] / "en-de"]
    with pytest.raises(StartupError, match=r"en-de can't be pulled: .*there is no directory"):
        bundles_of(["en-de"], tmp_path / "empty", str(tmp_path / "nowhere"), pulls=True)

"""Shared exports of the included model, which take seconds each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from export.bundle_writer import ExportOptions
from export.exporter import export_checkpoint
from export.parity import ParityReport
from model.bundle.bundle import Bundle
from model.network.checkpoint import Checkpoint, load_checkpoint
from tests.mirrors import MirrorServer, serving
from tests.pulls import pull, write_students

SHIPPED_CHECKPOINT = Path("model/checkpoints/en-de")
SHIPPED_BUNDLE = Path("model/pretrained/en-de")


@pytest.fixture(scope="session")
def shipped_checkpoint() -> Checkpoint:
    """The checkpoint of the included bundle."""
    return load_checkpoint(SHIPPED_CHECKPOINT)


@pytest.fixture(scope="session")
def shipped_fp32(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, ParityReport]:
    """The checkpoint's fp32 bundle, and the report of its export's checks."""
    directory = tmp_path_factory.mktemp("shipped") / "fp32"
    report = export_checkpoint(SHIPPED_CHECKPOINT, directory, ExportOptions("fp32"), threads=1)
    return Bundle.load(directory), report


@pytest.fixture(scope="session")
def shipped_bundles(shipped_fp32: tuple[Bundle, ParityReport]) -> dict[str, Bundle]:
    """Bundles by precision; int8 is the included one, which another test exports byte for byte."""
    return {"fp32": shipped_fp32[0], "int8": Bundle.load(SHIPPED_BUNDLE)}


@pytest.fixture(scope="session")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with models for en-de, two of them, for de-en and for en-fr."""
    return write_students(tmp_path_factory.mktemp("pull"))


@pytest.fixture(scope="session")
def pulled(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> tuple[Path, str]:
    """A store with en-de and de-en, tiny, and what the command printed. Not to be changed."""
    store = tmp_path_factory.mktemp("store")
    result = pull(store, mirror, "en-de", "de-en", "--type", "tiny")
    assert result.exit_code == 0, result.output
    return store, result.output


@pytest.fixture
def server(mirror: Path) -> Iterator[MirrorServer]:
    with serving(mirror) as made:
        yield made

"""A bundle to damage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.factories import tiny_bundle


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tiny bundle, which no test changes."""
    return tiny_bundle(tmp_path_factory.mktemp("bundles") / "pristine", top_k=5).path


@pytest.fixture
def directory(pristine: Path, tmp_path: Path) -> Path:
    """A copy of the bundle."""
    return Path(shutil.copytree(pristine, tmp_path / "bundle"))


def edit(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest of a bundle."""
    file = directory / "bundle.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))
    change(manifest)
    file.write_text(json.dumps(manifest), encoding="utf-8")

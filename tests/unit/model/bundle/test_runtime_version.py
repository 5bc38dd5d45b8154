"""Which ONNX Runtime a bundle is compared with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def install(directory: Path, package: str, version: str) -> Path:
    """Create the relevant files of a package that pip has installed."""
    (directory / "onnxruntime").mkdir(parents=True)
    (directory / "onnxruntime" / "__init__.py").touch()
    facts = directory / f"{package.replace('-', '_')}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return directory


@pytest.mark.parametrize("first", ["onnxruntime", "onnxruntime-gpu"])
def test_of_two_packages_it_is_the_one_that_is_imported(tmp_path: Path, first: str) -> None:
    second = {"onnxruntime": "onnxruntime-gpu", "onnxruntime-gpu": "onnxruntime"}[first]
    folders = [install(tmp_path / "a", first, "1.31.7"), install(tmp_path / "b", second, "1.30.0")]
    program = "from model.bundle.manifest_checks import installed_runtime_version as v; print(v())"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "1.31.7"

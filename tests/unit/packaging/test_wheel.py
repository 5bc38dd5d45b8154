"""What a wheel of this project holds, and what it leaves out."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = {"bench", "cli", "dragoman", "export", "model", "service"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = directory.glob("*.whl")
    return zipfile.Path(built)


def names(wheel: zipfile.Path) -> set[str]:
    return {name for name in wheel.root.namelist() if not name.endswith("/")}


def files_under(folder: Path) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_holds_the_packages_and_nothing_else(wheel: zipfile.Path) -> None:
    tops = {name.split("/")[0] for name in names(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES


def test_the_contract_lies_at_the_top(wheel: zipfile.Path) -> None:
    expected = {
        "dragoman/__init__.py",
        "dragoman/py.typed",
        "dragoman/v1/translation.proto",
        "dragoman/v1/translation_pb2.py",
        "dragoman/v1/translation_pb2.pyi",
        "dragoman/v1/translation_pb2_grpc.py",
    }
    assert expected <= names(wheel)


def test_every_module_is_in_it(wheel: zipfile.Path) -> None:
    for package in PACKAGES - {"dragoman"}:
        modules = {name for name in files_under(ROOT / package) if name.endswith(".py")}
        assert modules
        assert modules <= names(wheel)


def test_bundles_are_in_it_and_checkpoints_are_not(wheel: zipfile.Path) -> None:
    inside = names(wheel)
    assert files_under(ROOT / "model" / "pretrained") <= inside
    assert not [name for name in inside if name.startswith("model/checkpoints/")]
    assert not [name for name in inside if name.endswith(".safetensors")]


def test_metadata_says_what_the_project_file_says(wheel: zipfile.Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = f"dragoman-{project['version']}.dist-info"
    metadata = (wheel / info / "METADATA").read_text().splitlines()
    assert f"Version: {project['version']}" in metadata
    assert "License-Expression: Apache-2.0" in metadata
    extras = {line.split(": ")[1] for line in metadata if line.startswith("Provides-Extra: ")}
    assert extras == {"cpu", "gpu", "evaluate", "bench", "peers", "train", "dev", "manifests"}
    assert "dragoman = cli.main:app" in (wheel / info / "entry_points.txt").read_text()
    assert f"{info}/licenses/LICENSE" in names(wheel)

"""The contents of the server's and the client's wheels."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import dragoman

ROOT = Path(__file__).parents[3]
PACKAGES = {"bench", "cli", "export", "model", "service"}


def build(project: Path, directory: Path) -> zipfile.Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
        cwd=project,
        check=True,
        capture_output=True,
    )
    (built,) = directory.glob("*.whl")
    return zipfile.Path(built)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """The server's."""
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """The client's."""
    return build(ROOT / "proto", tmp_path_factory.mktemp("wheel"))


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


def test_the_contract_lies_at_the_top_of_the_clients(client: zipfile.Path) -> None:
    expected = {
        "dragoman/__init__.py",
        "dragoman/py.typed",
        "dragoman/v1/translation.proto",
        "dragoman/v1/translation_pb2.py",
        "dragoman/v1/translation_pb2.pyi",
        "dragoman/v1/translation_pb2_grpc.py",
    }
    assert expected <= names(client)


def test_every_module_is_in_it(wheel: zipfile.Path) -> None:
    for package in [*PACKAGES - {"bench"}, "bench/load"]:
        modules = {name for name in files_under(ROOT / package) if name.endswith(".py")}
        assert modules
        assert modules <= names(wheel)


def test_of_the_benchmarks_only_the_load_generator_is_in_it(wheel: zipfile.Path) -> None:
    inside = {name for name in names(wheel) if name.startswith("bench/")}
    assert inside == {"bench/__init__.py", *files_under(ROOT / "bench" / "load")}


def test_bundles_are_in_it_and_checkpoints_are_not(wheel: zipfile.Path) -> None:
    inside = names(wheel)
    assert files_under(ROOT / "model" / "pretrained") <= inside
    assert not [name for name in inside if name.startswith("model/checkpoints/")]
    assert not [name for name in inside if name.endswith(".safetensors")]


def metadata_of(wheel: zipfile.Path) -> list[str]:
    (info,) = [part for part in wheel.iterdir() if part.name.endswith(".dist-info")]
    assert (info / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    return (info / "METADATA").read_text().splitlines()


def test_metadata_says_what_the_project_file_says(wheel: zipfile.Path) -> None:
    metadata = metadata_of(wheel)
    assert f"Version: {dragoman.__version__}" in metadata
    assert "License-Expression: Apache-2.0" in metadata
    extras = {line.split(": ")[1] for line in metadata if line.startswith("Provides-Extra: ")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extras == set(project["optional-dependencies"])
    points = wheel / f"dragoman-{dragoman.__version__}.dist-info" / "entry_points.txt"
    assert "dragoman = cli.main:app" in points.read_text()


def test_the_client_is_the_owner_of_the_package_dragoman(
    client: zipfile.Path, wheel: zipfile.Path
) -> None:
    tops = {name.split("/")[0] for name in names(client) if ".dist-info/" not in name}
    assert tops == {"dragoman"}
    # No file is of both: to uninstall one would break the other.
    assert not names(client) & names(wheel)


def test_the_server_requires_the_client_of_its_own_version(
    client: zipfile.Path, wheel: zipfile.Path
) -> None:
    version = dragoman.__version__
    assert f"Requires-Dist: dragoman-client=={version}" in metadata_of(wheel)
    assert f"Version: {version}" in metadata_of(client)


def test_the_client_needs_a_part_of_what_the_server_needs(
    client: zipfile.Path, wheel: zipfile.Path
) -> None:
    ours, servers = (
        {line for line in metadata_of(built) if line.startswith("Requires-Dist: ")}
        for built in (client, wheel)
    )
    assert len(ours) == 3
    assert ours < servers

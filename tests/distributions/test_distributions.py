"""Published distributions can be installed, can serve, and can be built from source."""

import json
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from packaging.metadata import Metadata

import dragoman
from tests.distributions.conftest import ROOT, Distributions, run, serving

pytestmark = pytest.mark.dist

TEXT, TRANSLATION = "She is reading a book.", "Sie liest ein Buch."
MEBIBYTE = 2**20
TRANSLATE = f"""
import sys
import dragoman

with dragoman.Client(sys.argv[1], timeout=60) as client:
    [translation] = client.translate([{TEXT!r}], source="en", target="de").translations
    print(translation.text)
assert not {{"service", "model", "numpy", "onnxruntime"}} & set(sys.modules)
"""


def metadata(distribution: Path) -> Metadata:
    """The metadata of a wheel or a source distribution, checked."""
    if distribution.suffix == ".whl":
        with zipfile.ZipFile(distribution) as wheel:
            (name,) = [n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")]
            return Metadata.from_email(wheel.read(name))
    with tarfile.open(distribution) as archive:
        name = f"{distribution.name.removesuffix('.tar.gz')}/PKG-INFO"
        held = archive.extractfile(name)
        assert held is not None
        return Metadata.from_email(held.read())


def names(distribution: Path) -> set[str]:
    """The files of a distribution; those of a source distribution without its first folder."""
    if distribution.suffix == ".whl":
        with zipfile.ZipFile(distribution) as wheel:
            return set(wheel.namelist())
    with tarfile.open(distribution) as archive:
        return {str(PurePosixPath(*PurePosixPath(n).parts[1:])) for n in archive.getnames()}


def test_all_have_valid_metadata_of_this_version(built: Distributions) -> None:
    for distribution in (built.server_wheel, built.server_source):
        assert metadata(distribution).name == "dragoman"
    for distribution in (built.client_wheel, built.client_source):
        assert metadata(distribution).name == "dragoman-client"
    for distribution in (*built.folder.glob("*.whl"), *built.folder.glob("*.tar.gz")):
        told = metadata(distribution)
        assert str(told.version) == dragoman.__version__
        assert told.license_expression == "Apache-2.0"
        assert told.description_content_type == "text/markdown"
        assert told.description


def test_a_release_has_notes_a_list_of_packages_and_checksums(built: Distributions) -> None:
    assert "### Added" in (built.folder / "NOTES.md").read_text()
    (listed,) = built.folder.glob("*.cdx.json")
    packages = {each["name"] for each in json.loads(listed.read_text())["components"]}
    assert {"onnxruntime", "grpcio"} <= packages
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=built.folder)
    summed = (built.folder / "SHA256SUMS").read_text().split()[1::2]
    assert sorted(summed) == sorted(
        path.name for path in built.folder.iterdir() if path.name != "SHA256SUMS"
    )


def test_they_hold_what_serves_and_nothing_that_trained_it(built: Distributions) -> None:
    bundle = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("model/pretrained/*/*.*")}
    assert any(name.endswith("weights.bin") for name in bundle)
    for distribution in (built.server_wheel, built.server_source):
        inside = names(distribution)
        assert bundle <= inside
        assert not [name for name in inside if name.startswith(("model/checkpoints", "runs"))]
    inside = names(built.server_wheel)
    assert not [name for name in inside if name.startswith(("tests", "docker"))]
    inside = names(built.server_source)
    assert {"Makefile", "pyproject.toml", "constraints.txt", "LICENSE", "README.md"} <= inside


@pytest.mark.parametrize(
    ("name", "mebibytes"),
    [("server_wheel", 30), ("server_source", 34), ("client_wheel", 1), ("client_source", 1)],
)
def test_they_are_small(built: Distributions, name: str, mebibytes: int) -> None:
    assert getattr(built, name).stat().st_size < mebibytes * MEBIBYTE


def test_a_server_from_the_wheel_translates(installed: Path, tmp_path: Path) -> None:
    ports = ("--port", "0", "--metrics-port", "0", "--threads", "1")
    with serving(installed / "dragoman", "serve", *ports, cwd=tmp_path) as address:
        answer = run(installed / "dragoman", "translate", "--server", address, TEXT, cwd=tmp_path)
    assert answer.strip() == TRANSLATION


def test_the_client_works_without_the_servers_packages(
    installed: Path, client_alone: Path, tmp_path: Path
) -> None:
    listed = run(client_alone / "python", "-m", "pip", "list", "--format", "json", cwd=tmp_path)
    packages = {each["name"] for each in json.loads(listed)} - {"pip", "setuptools"}
    assert packages == {
        *("dragoman-client", "googleapis-common-protos", "grpcio", "protobuf"),
        "typing_extensions",
    }
    ports = ("--port", "0", "--metrics-port", "0", "--threads", "1")
    with serving(installed / "dragoman", "serve", *ports, cwd=tmp_path) as address:
        answer = run(client_alone / "python", "-c", TRANSLATE, address, cwd=tmp_path)
    assert answer.strip() == TRANSLATION


@pytest.fixture(scope="module")
def unpacked(built: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(built.server_source) as archive:
        archive.extractall(folder, filter="data")
    (made,) = folder.iterdir()
    return made


def test_make_serve_works_in_the_source_distribution(unpacked: Path) -> None:
    arguments = "ARGS=--port 0 --metrics-port 0 --threads 1"
    with serving("make", "serve", arguments, cwd=unpacked) as address:
        command = unpacked / ".venv" / "bin" / "dragoman"
        answer = run(command, "translate", "--server", address, TEXT, cwd=unpacked)
    assert answer.strip() == TRANSLATION


def test_make_test_works_in_the_source_distribution(unpacked: Path) -> None:
    # With the packages of the checkout, which are the same and take minutes to install.
    make = ("make", "test", f"venv={ROOT / '.venv'}", "TEST_PROCESSES=0")
    collected = run(*make, "ARGS=--collect-only -q", cwd=unpacked)
    assert "tests/integration/test_service.py" in collected
    assert "errors" not in collected.splitlines()[-1]
    passed = run(*make, "ARGS=tests/unit/service/translation/test_segmentation.py -q", cwd=unpacked)
    assert " passed" in passed.splitlines()[-1]


def test_the_wheel_from_the_source_distribution_is_the_same(
    unpacked: Path, built: Distributions, tmp_path: Path
) -> None:
    python = ROOT / ".venv" / "bin" / "python"
    run(python, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=unpacked)
    (rebuilt,) = tmp_path.glob("*.whl")
    assert names(rebuilt) == names(built.server_wheel)

"""The Dockerfile, and the locked requirements that it installs."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

from service.settings import Settings
from tests.containers.tools import DOCKER, ROOT, run, tool

DOCKERFILE = (DOCKER / "Dockerfile").read_text()
REQUIREMENTS = sorted((DOCKER / "requirements").glob("*.txt"))
NOT_IN_A_SERVER = {"torch", "onnx", "safetensors", "sacrebleu", "pytest", "setuptools", "hatchling"}


def locked(file: Path) -> dict[str, Requirement]:
    text = file.read_text().replace("\\\n", " ")
    lines = [line.split(" --hash")[0].strip() for line in text.splitlines() if "==" in line]
    return {(found := Requirement(line)).name: found for line in lines}


def test_hadolint_finds_nothing() -> None:
    run(tool("hadolint"), DOCKER / "Dockerfile")


@pytest.mark.parametrize("file", REQUIREMENTS, ids=lambda file: file.name)
def test_every_package_is_locked_with_hashes(file: Path) -> None:
    entries = file.read_text().replace("\\\n", " ").splitlines()
    packages = [line for line in entries if line and not line.startswith("#")]
    assert packages
    for line in packages:
        assert re.match(r"^[\w.-]+==[\w.+]+( ; [^#]+)? +--hash=sha256:[0-9a-f]{64}", line), line
    assert "://" not in file.read_text()


@pytest.mark.parametrize("file", REQUIREMENTS, ids=lambda file: file.name)
def test_versions_are_those_of_the_constraints(file: Path) -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints = {
        (entry := Requirement(line)).name: str(entry.specifier)
        for line in lines
        if line and not line.startswith("#")
    }
    for name, requirement in locked(file).items():
        if name in constraints:
            assert str(requirement.specifier) == constraints[name], f"{name}: `make lock-images`"


@pytest.mark.parametrize(
    ("file", "extras"),
    [
        ("cpu.txt", ["cpu", "otel", "jwt"]),
        ("gpu.txt", ["gpu", "otel", "jwt"]),
        ("load.txt", ["cpu", "bench"]),
    ],
)
def test_what_the_project_needs_is_locked(file: str, extras: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = [*project["dependencies"]]
    for extra in extras:
        needs += project["optional-dependencies"][extra]
    there = locked(DOCKER / "requirements" / file)
    for need in map(Requirement, needs):
        if need.name == "dragoman-client":
            continue  # built with the server's wheel, from the same tree
        pin = next(iter(there[need.name].specifier))
        assert need.specifier.contains(pin.version), f"{need}: `make lock-images`"


@pytest.mark.parametrize("file", ["cpu.txt", "gpu.txt"])
def test_nothing_to_train_or_build_with_is_in_a_server(file: str) -> None:
    assert not NOT_IN_A_SERVER & set(locked(DOCKER / "requirements" / file))


def test_the_locked_set_is_whole_on_linux() -> None:
    there = locked(DOCKER / "requirements" / "cpu.txt")
    elsewhere = [Marker("sys_platform == 'win32'"), Marker("python_full_version < '3.11.3'")]
    there = {name: item for name, item in there.items() if item.marker not in elsewhere}
    linux = {"sys_platform": "linux", "implementation_name": "cpython"}
    linux["platform_python_implementation"] = "CPython"
    assert all(item.marker is None or item.marker.evaluate(linux) for item in there.values())
    assert {"onnxruntime", "grpcio", "numpy", "sentencepiece", "protobuf"} <= set(there)


def stage(name: str) -> str:
    (found,) = re.findall(
        rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL
    )
    return str(found)


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_servers_are_checked_and_drain(target: str) -> None:
    text = stage(target)
    assert 'CMD ["python", "-m", "service.ports.healthcheck"]' in text
    assert "STOPSIGNAL SIGTERM" in text
    # Exec form: a shell in between would not hand the signal on.
    assert 'CMD ["serve"]' in text
    for port in (Settings.port, Settings.metrics_port):
        assert re.search(rf"^EXPOSE .*\b{port}\b", text, re.MULTILINE)


def test_images_run_as_nobody_and_have_no_builder_in_them() -> None:
    assert re.search(r"^USER \d+:\d+$", stage("runtime"), re.MULTILINE)
    for target in ("runtime", "cpu", "gpu"):
        for line in re.findall(r"^COPY .*$", stage(target), re.MULTILINE):
            assert line == f"COPY --from={target}-environment /opt/dragoman /opt/dragoman"
        assert "pip" not in stage(target)


def test_the_environment_names_settings() -> None:
    names = set(re.findall(r"\b(DRAGOMAN_[A-Z_]+)", DOCKERFILE))
    known = {f"DRAGOMAN_{name.upper()}" for name in Settings.__dataclass_fields__}
    assert names == {
        *("DRAGOMAN_HOST", "DRAGOMAN_HTTP_HOST", "DRAGOMAN_METRICS_HOST", "DRAGOMAN_DEVICE"),
        "DRAGOMAN_INSECURE",
    }
    assert names <= known


def test_what_is_copied_is_not_ignored() -> None:
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    allowed = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    for source in {path for line in copied for path in line.split()}:
        path = ROOT / source
        assert path.exists(), source
        assert any(path.match(str(ROOT / entry)) for entry in allowed), source
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {package.split("/")[0] for package in packages} <= allowed

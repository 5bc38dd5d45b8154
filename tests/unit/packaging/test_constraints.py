"""The locked versions fit the declared ranges, and bring no package of a GPU."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCKED = {
    canonicalize_name(requirement.name): requirement
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
    for requirement in [Requirement(line)]
}
OWN = {"dragoman", "dragoman-client"}
DECLARED = [
    Requirement(text)
    for text in [
        *PROJECT["dependencies"],
        *(text for extra, texts in EXTRAS.items() if extra != "gpu" for text in texts),
    ]
]


@pytest.mark.parametrize(
    "declared", [r for r in DECLARED if r.name not in OWN], ids=lambda r: r.name
)
def test_what_is_declared_is_locked_within_its_range(declared: Requirement) -> None:
    (pin,) = LOCKED[canonicalize_name(declared.name)].specifier
    assert pin.operator == "=="
    assert declared.specifier.contains(Version(pin.version))


def test_no_gpu_package_is_locked() -> None:
    gpu = re.compile(r"cuda-|nvidia-|triton$|onnxruntime-gpu$")
    assert not [name for name in LOCKED if gpu.match(name)]


def test_the_two_onnx_runtimes_are_asked_for_by_one_extra_each() -> None:
    asking = {
        extra: {Requirement(text).name for text in texts} & {"onnxruntime", "onnxruntime-gpu"}
        for extra, texts in EXTRAS.items()
    }
    assert asking.pop("cpu") == {"onnxruntime"}
    assert asking.pop("gpu") == {"onnxruntime-gpu"}
    assert not any(asking.values())


def test_stubs_are_generated_by_exactly_one_version() -> None:
    for name in ("grpcio-tools", "mypy-protobuf"):
        (declared,) = [r for r in DECLARED if r.name == name]
        assert [specifier.operator for specifier in declared.specifier] == ["=="]

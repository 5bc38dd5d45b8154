"""All imported packages are declared, not only installed as dependencies of others."""

import ast
import importlib.metadata
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
FIRST_PARTY = {"bench", "cli", "dragoman", "export", "model", "service"}
PROVIDERS = importlib.metadata.packages_distributions()


def imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def third_party(package: Path) -> set[str]:
    return {
        name
        for path in package.rglob("*.py")
        for name in (module.split(".")[0] for module in imported_modules(path))
        if name not in FIRST_PARTY and name not in sys.stdlib_module_names
    }


def declared(file: Path, *extras: str) -> set[str]:
    project = tomllib.loads(file.read_text())["project"]
    found = [Requirement(text) for text in project["dependencies"]]
    left = list(extras)
    while left:
        for text in project["optional-dependencies"][left.pop()]:
            requirement = Requirement(text)
            if requirement.name == project["name"]:  # an extra that brings others along
                left += requirement.extras
            found.append(requirement)
    return {canonicalize_name(requirement.name) for requirement in found}


@pytest.mark.parametrize(
    ("folder", "extras"),
    [
        ("service", ["cache", "cpu", "jwt", "otel"]),
        ("model", ["cpu", "train", "tokenizers"]),
        ("export", ["cpu", "train", "import"]),
        ("cli", ["cpu", "train", "bench", "pictures", "ray"]),
        ("bench", ["cpu", "bench", "faults", "fuzz", "import", "peers", "train"]),
    ],
)
def test_imports_are_declared(folder: str, extras: list[str]) -> None:
    check(ROOT / folder, declared(ROOT / "pyproject.toml", *extras))


def test_imports_of_the_client_are_declared_by_its_own_distribution() -> None:
    check(ROOT / "proto" / "dragoman", declared(ROOT / "proto" / "pyproject.toml"))


def check(package: Path, allowed: set[str]) -> None:
    for module in third_party(package):
        # A package that is not installed here has the name of its module.
        providers = {canonicalize_name(name) for name in PROVIDERS.get(module, [module])}
        assert providers & allowed, f"{package} imports {module}: declare one of {providers}"

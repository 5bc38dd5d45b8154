"""The modules that a process really imports: static contracts miss imports by name."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from service.ports.http.front_routes import all_fronts

ROOT = Path(__file__).parents[3]

IMPORT_ALL_WITHOUT = """
import importlib, pkgutil, sys
for name in {forbidden}:
    sys.modules[name] = None  # importing it raises ImportError
for package_name in {packages}:
    package = importlib.import_module(package_name)
    for module in pkgutil.walk_packages(package.__path__, package_name + "."):
        importlib.import_module(module.name)
"""

LOADED_BY = """
import sys
import {module}
print(*sorted({{"torch", "onnx", "onnxruntime", "sacrebleu", "tensorboard"}} & set(sys.modules)))
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_server_runs_where_only_its_own_dependencies_are() -> None:
    training_only = ["torch", "onnx", "safetensors", "sacremoses", "tensorboard"]
    run(IMPORT_ALL_WITHOUT.format(packages=["service", "dragoman"], forbidden=training_only))


def test_the_client_needs_no_runtime() -> None:
    forbidden = ["torch", "onnxruntime", "numpy", "sentencepiece", "service", "model"]
    run(IMPORT_ALL_WITHOUT.format(packages=["dragoman"], forbidden=forbidden))


def test_the_command_line_starts_without_the_heavy_libraries() -> None:
    assert run(LOADED_BY.format(module="cli.main")) == ""


@pytest.mark.parametrize(
    ("contract", "key"),
    [("interfaces-apart", "modules"), ("contract-in-its-interface", "source_modules")],
)
def test_the_rules_of_import_linter_list_every_front(contract: str, key: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [listed] = [each[key] for each in contracts if each["id"] == contract]
    for front in all_fronts(needs_keys=False, max_file_bytes=1):
        module = ".".join(type(front).__module__.split(".")[:3])  # or its package
        assert module in listed

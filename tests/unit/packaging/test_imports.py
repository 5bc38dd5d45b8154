"""The modules that a process really imports: static contracts miss imports by name."""

import subprocess
import sys
from pathlib import Path

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

"""Checks whether this machine can run the benchmark. Works whatever is missing."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Without these no part runs; without what serving needs, only some do.
NEEDED = ("numpy", "onnx", "protobuf", "sentencepiece")
FOR_TESTS = ("torch", "safetensors", "pydantic", "pytest", "pytest-timeout", "hypothesis")
# A product of matrices, and its factor twice.
PRODUCT, FACTOR = [[7.0, 10.0], [15.0, 22.0]], [[1.0, 2.0], [3.0, 4.0]]


def look(device: str) -> tuple[dict[str, Any], list[str], list[str]]:
    """Facts about the machine, reasons why the benchmark can't run, and optional tools it lacks."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "processor": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "gpu": _gpu(),
    }
    fatal = _missing(NEEDED, facts)
    optional = _missing([*for_serving(), *FOR_TESTS], facts)
    if not (3, 11) <= sys.version_info < (3, 14):
        fatal.append(f"Python {facts['python']}: dragoman needs 3.11, 3.12 or 3.13")
    try:
        fatal += _runtime(device, facts)
    except ImportError as exc:
        fatal.append(f"onnxruntime-gpu: {exc}")
    return facts, fatal, [line for line in optional if line not in fatal]


def for_serving() -> list[str]:
    """The packages that pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[^\w-]", line, maxsplit=1)[0] for line in project["dependencies"]]
    return [name for name in names if name != "dragoman-client"]  # that is in the tree


def _missing(packages: Iterable[str], facts: dict[str, Any]) -> list[str]:
    missing = []
    for package in dict.fromkeys(packages):
        try:
            facts[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            missing.append(f"{package} is not installed")
    return missing


def _runtime(device: str, facts: dict[str, Any]) -> list[str]:
    import onnxruntime as ort

    facts["onnxruntime-gpu"] = f"{ort.__version__} from {Path(ort.__file__).parent}"
    if not ort.__version__.startswith("1.31"):
        return [f"onnxruntime {ort.__version__} is imported, but bundles are checked with 1.31"]
    if device != "cpu" and "CUDAExecutionProvider" not in ort.get_available_providers():
        return [
            f"onnxruntime {ort.__version__} in {Path(ort.__file__).parent} is for CPUs: put the "
            f"wheel of onnxruntime-gpu into the folder of wheels"
        ]
    try:
        return _session(device, facts)
    except Exception as exc:
        return [f"{type(exc).__name__}: {exc}"]


def _session(device: str, facts: dict[str, Any]) -> list[str]:
    """Multiply two matrices, with the libraries and the driver that serving uses."""
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper

    from model.bundle.sessions import Device, use_device

    where = Device.parse(device)
    use_device(where)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [2, 2]) for name in "abc"]
    node = helper.make_node("MatMul", ["a", "b"], ["c"])
    graph = helper.make_graph([node], "product", values[:2], values[2:])
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    kind = f"{where.kind.upper()}ExecutionProvider"
    options = [{"device_id": str(where.index)} if where.kind == "cuda" else {}]
    session = ort.InferenceSession(
        model.SerializeToString(), providers=[kind], provider_options=options
    )
    if session.get_providers()[0] != kind:
        return [f"ONNX Runtime does not use {device}: its own message is above"]
    feeds = dict.fromkeys("ab", np.array(FACTOR, np.float16))
    [product] = session.run(None, feeds)
    facts["libraries"] = _libraries()
    if not np.array_equal(product, np.array(PRODUCT, np.float16)):
        return [f"{device} multiplies wrongly: {product.tolist()} in place of {PRODUCT}"]
    return []


def _libraries() -> list[str]:
    """Paths of the CUDA libraries that this process has loaded."""
    found = Path("/proc/self/maps").read_text(encoding="utf-8") if sys.platform == "linux" else ""
    lines = re.findall(r"/\S*lib(?:cu|nv)\w+\.so[.\d]*$", found, re.MULTILINE)
    return sorted(set(lines))


def _gpu() -> str:
    if shutil.which("nvidia-smi") is None:
        return "no nvidia-smi"
    query = "--query-gpu=name,driver_version,memory.total,compute_cap"
    found = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, timeout=60
    )
    return "; ".join(found.stdout.split("\n")).strip("; ") or found.stderr.strip()


def main(directory: Path, device: str) -> int:
    """Write preflight.json and print what is wrong. Returns 0 if the benchmark can run."""
    facts, fatal, optional = look(device)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "preflight.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    for line in fatal:
        print(f"MISSING  {line}")
    for line in optional:
        print(f"without  {line} (the part that needs it is left out)")
    for line in facts.get("libraries", []):
        print(f"loaded   {line}")
    if not fatal:
        print(f"ready    {device}, {facts['gpu']}, onnxruntime {facts['onnxruntime-gpu']}")
    return 1 if fatal else 0

"""Checks whether this machine can run the benchmark. Works whatever is missing."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

# What each part imports, by the names of modules and of what brings them.
NEEDED = {
    "numpy": "numpy", "onnxruntime": "onnxruntime-gpu", "onnx": "onnx", "torch": "torch",
    "sentencepiece": "sentencepiece", "safetensors": "safetensors", "google.protobuf": "protobuf",
    "hypothesis": "hypothesis", "pytest": "pytest", "pytest_timeout": "pytest-timeout",
}  # fmt: skip
FOR_SERVING = {
    "grpc": "grpcio", "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection", "google.rpc": "googleapis-common-protos",
    "prometheus_client": "prometheus-client", "sentencex": "sentencex", "typer": "typer",
    "rich": "rich",
}  # fmt: skip
FOR_PEERS = {"ctranslate2": "ctranslate2"}


def look(device: str) -> tuple[dict[str, Any], list[str], list[str]]:
    """Facts of the machine, what keeps the benchmark from running, and what is only missing."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "processor": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "gpu": _gpu(),
    }
    fatal = _missing(NEEDED, facts)
    optional = _missing(FOR_SERVING, facts) + _missing(FOR_PEERS, facts)
    if not (3, 11) <= sys.version_info < (3, 14):
        fatal.append(f"Python {facts['python']}: dragoman needs 3.11, 3.12 or 3.13")
    if not any(line.startswith("onnxruntime") for line in fatal):
        fatal += _runtime(device, facts)
    return facts, fatal, optional


def _missing(modules: dict[str, str], facts: dict[str, Any]) -> list[str]:
    missing = []
    for module, package in modules.items():
        try:
            importlib.import_module(module)
        except Exception as exc:
            missing.append(f"{package}: {type(exc).__name__}: {exc}")
            continue
        try:
            facts[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            facts[package] = getattr(sys.modules[module], "__version__", "unknown")
    return missing


def _runtime(device: str, facts: dict[str, Any]) -> list[str]:
    import onnxruntime as ort

    facts["onnxruntime-gpu"] = f"{ort.__version__} from {Path(ort.__file__).parent}"
    if not ort.__version__.startswith("1.31"):
        return [f"onnxruntime {ort.__version__} is imported, but bundles are checked with 1.31"]
    if device == "cpu":
        return []
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        return [
            f"onnxruntime {ort.__version__} in {Path(ort.__file__).parent} is for CPUs: put the "
            f"wheel of onnxruntime-gpu into the folder of wheels"
        ]
    import torch

    facts["torch.cuda"] = str(torch.version.cuda)
    if not torch.cuda.is_available():
        return ["PyTorch sees no GPU"]
    facts["device"] = torch.cuda.get_device_name(0)
    return []


def _gpu() -> str:
    if shutil.which("nvidia-smi") is None:
        return "no nvidia-smi"
    query = "--query-gpu=name,driver_version,memory.total,clocks.max.sm"
    found = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, timeout=60
    )
    return "; ".join(found.stdout.split("\n")).strip("; ") or found.stderr.strip()


def main(directory: Path, device: str) -> int:
    """Write preflight.json and print what is wrong; 0 if the benchmark can run."""
    facts, fatal, optional = look(device)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "preflight.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    for line in fatal:
        print(f"MISSING  {line}")
    for line in optional:
        print(f"without  {line} (the part that needs it is left out)")
    if not fatal:
        print(f"ready    {facts.get('device', device)}, onnxruntime {facts['onnxruntime-gpu']}")
    return 1 if fatal else 0

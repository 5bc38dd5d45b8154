"""CUDA's libraries are found, or the error names all places that were tried."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.factories import tiny_bundle
from tests.stand_in.running import ROOT, STAND_IN, completed, run, variables

DRIVER, CUDNN = "libcuda.so.1", "libcudnn.so.9"


def places(tmp_path: Path, **packages: str) -> dict[str, str]:
    """Variables with the driver on the loader's path, and the rest in Python packages elsewhere.

    Args:
        tmp_path: directory of the libraries.
        packages: patterns of library names by NVIDIA's packages.
    """
    libraries = Path(STAND_IN).resolve() / "lib"
    driver, elsewhere = tmp_path / "driver", tmp_path / "beside-torch"
    (elsewhere / "torch").mkdir(parents=True)
    driver.mkdir()
    shutil.copy(libraries / DRIVER, driver)
    for package, pattern in packages.items():
        folder = elsewhere / "nvidia" / package / "lib"
        folder.mkdir(parents=True)
        for file in libraries.glob(pattern):
            if file.name != DRIVER and not file.name.endswith((".c", ".map")):
                shutil.copy(file, folder)
    path = os.pathsep.join([variables()["PYTHONPATH"], str(elsewhere)])
    return {"LD_LIBRARY_PATH": str(driver), "PYTHONPATH": path}


def preflight(output: Path, changed: dict[str, str]) -> str:
    """The output of preflight."""
    arguments = ("-m", "bench.gpu.run", "preflight", "--output", output, "--device", "cuda")
    done = completed(*arguments, given={**variables(), **changed})
    assert done.returncode == 1, done.stderr
    return done.stdout


def test_libraries_beside_torch_are_found(tmp_path: Path) -> None:
    changed = places(tmp_path, cu13="libcu[!bd]*", cuda_runtime="libcudart*", cublas="libcublas*",
                     cudnn="libcudnn*")  # fmt: skip
    bundle = tiny_bundle(tmp_path / "bundle", precision="fp16", resident=True)
    [found] = run("check.py", bundle.path, **changed)
    assert found["captured"] > 0
    said = preflight(tmp_path / "out", changed)
    lines = said.splitlines()
    loaded = {line.split()[1] for line in lines if line.startswith("loaded")}
    assert str(tmp_path / "beside-torch" / "nvidia" / "cudnn" / "lib" / CUDNN) in loaded
    # The stand-in computes nothing: that is all that it has to say.
    [missing] = [line for line in lines if line.startswith("MISSING")]
    assert missing.startswith("MISSING  cuda multiplies wrongly: [[0.0, 0.0], [0.0, 0.0]]")


@pytest.mark.parametrize(
    ("packages", "missing"),
    [
        ({}, "libcu"),  # the first one, or the next on a machine that has CUDA's runtime
        ({"cuda_runtime": "libcudart*"}, "libcublasLt.so.13"),
        ({"cu13": "libcu[!d]*", "cuda_runtime": "libcudart*"}, CUDNN),
    ],
)
def test_a_missing_library_is_named_with_every_place(
    tmp_path: Path, packages: dict[str, str], missing: str
) -> None:
    said = preflight(tmp_path / "out", places(tmp_path, **packages))
    [line] = [line for line in said.splitlines() if line.startswith("MISSING")]
    assert f"cannot use the GPU cuda:0: {missing}" in line
    assert "can't be loaded" in line
    assert "it was looked for in the loader's path, " in line
    elsewhere = tmp_path / "beside-torch" / "nvidia"
    for package in packages:
        assert str(elsewhere / package / "lib") in line
    if not packages:
        assert f"{elsewhere}/*/lib" in line
        assert f"{ROOT}/nvidia/*/lib" in line


def test_a_machine_without_a_driver_is_told_apart(tmp_path: Path) -> None:
    changed = places(tmp_path, cu13="*.so*")
    said = preflight(tmp_path / "out", {**changed, "LD_LIBRARY_PATH": ""})
    [line] = [line for line in said.splitlines() if line.startswith("MISSING")]
    assert f"{DRIVER} can't be loaded" in line
    assert "it was looked for as a part of NVIDIA's driver" in line

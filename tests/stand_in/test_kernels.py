"""The kernels that ONNX Runtime selects, by kind of GPU and version of cuDNN."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.factories import tiny_bundle
from tests.stand_in.running import ROOT, STAND_IN, run, run_with_output

GPU_PAGE = (ROOT / "service" / "GPU.md").read_text(encoding="utf-8")
FAT_BINARY = b"\x50\xed\x55\xba\x01\x00"  # its first bytes, and its version
LAYERS = 2
# Width of a head: 64 has kernels of its own (XQA), from compute capability 8.0 on.
HEADS: dict[int, dict[str, Any]] = {
    32: {"d_model": 64, "num_heads": 2},
    64: {"d_model": 128, "num_heads": 2},
}
ASKED = os.environ.get("STAND_IN_SM"), os.environ.get("STAND_IN_CUDNN")
GPUS = [(75, 91000), (80, 91300), (90, 91000), (90, 92200), (120, 91300)]


@pytest.mark.parametrize(("sm", "cudnn"), [ASKED] if all(ASKED) else GPUS)
def test_no_attention_needs_a_plan_of_cudnn_or_a_matrix_of_all_pairs(
    tmp_path: Path, sm: int | str, cudnn: int | str
) -> None:
    paths = [
        tiny_bundle(tmp_path / str(width), precision="fp16", **shape).path
        for width, shape in HEADS.items()
    ]
    debug = {"ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO": 1}
    for width, path in zip(HEADS, paths, strict=True):
        _, printed = run_with_output("kernels.py", path, STAND_IN_SM=sm, STAND_IN_CUDNN=cudnn,
                                     **debug)  # fmt: skip
        taken = set(re.findall(r"Operator=(\w+) .*?Node=(\w+).*? SdpaKernel=(\w+)", printed))
        flash = "FLASH_ATTENTION" if int(sm) >= 80 else "EFFICIENT_ATTENTION"
        xqa = "XQA" if int(sm) >= 80 and width == 64 else flash
        assert taken == {
            ("GroupQueryAttention", "decoder", xqa),
            ("MultiHeadAttention", "encoder", "EFFICIENT_ATTENTION"),
            ("MultiHeadAttention", "decoder", flash),
        }


def test_the_documented_gpus_are_those_that_the_wheel_has_kernels_for() -> None:
    """A fat binary has code for a compute capability (kind 2), or for a driver to compile (1)."""
    [provider] = Path(STAND_IN).glob("site/onnxruntime/capi/libonnxruntime_providers_cuda.so")
    binary = provider.read_bytes()
    kinds = set()
    for found in re.finditer(re.escape(FAT_BINARY), binary):
        header, size = struct.unpack_from("<HQ", binary, found.start() + 6)
        place, end = found.start() + header, found.start() + header + size
        while place < end:
            kind, _, entry_header, entry_size = struct.unpack_from("<HHIQ", binary, place)
            kinds.add((kind, *struct.unpack_from("<I", binary, place + 28)))
            place += entry_header + entry_size
    assert {kind for kind, _ in kinds} == {2}
    [listed] = re.findall(r"kernels for compute capabilities(.*?), and none", GPU_PAGE, re.DOTALL)
    documented = re.findall(r"(\d+)\.(\d) \(", listed)
    assert {int(major + minor) for major, minor in documented} == {sm for _, sm in kinds}


def test_how_much_is_launched(tmp_path: Path) -> None:
    """Each launch takes some microseconds with one row, and there is a step for every token."""
    sizes: dict[str, Any] = {
        "num_decoder_layers": LAYERS,
        "num_encoder_layers": LAYERS,
        "vocab_size": 16_000,
    }
    bundle = tiny_bundle(tmp_path / "bundle", precision="fp16", **HEADS[64], **sizes)
    [found] = run("kernels.py", bundle.path, STAND_IN_SM=90)
    for part, kernels, products in (
        ("step", 13 * LAYERS + 19, 6 * LAYERS + 1),
        ("encode", 11 * LAYERS + 21, 5 * LAYERS),
    ):
        launched = found[part]
        assert not [name for name in launched if name.startswith("cudnn")]
        assert len([name for name in launched if name.startswith("cublas")]) == products
        assert len(launched) - products <= kernels, launched
    assert found["step"].count("PartialTopK") == 1

"""A model stays within its share of the GPU's memory under any traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.factories import tiny_bundle
from tests.stand_in.running import run

GIB = 1 << 30
WIDE: dict[str, Any] = {
    "d_model": 256,
    "num_heads": 4,
    "ffn_dim": 1024,
    "vocab_size": 8000,
    "max_positions": 512,
}
# Each has another largest part: the vocabulary, indices of many heads, or scores of attention.
SHAPES: list[tuple[dict[str, Any], float]] = [
    ({**WIDE, "vocab_size": 32_000, "num_decoder_layers": 3}, 3),
    ({**WIDE, "num_heads": 32}, 2.5),
    ({**WIDE, "encoder_attention": "local", "attention_window": 64}, 3),
    ({**WIDE, "encoder_attention": "linformer", "cross_attention": "linformer"}, 2),
]


@pytest.mark.parametrize(("shape", "gib"), SHAPES, ids=str)
def test_a_model_stays_within_its_share(tmp_path: Path, shape: dict[str, Any], gib: float) -> None:
    """In the other half, another version of it can be opened at the same time."""
    bundle = tiny_bundle(tmp_path / "bundle", precision="fp16", **shape)
    total = int(gib * GIB)
    found = run("memory.py", bundle.path, STAND_IN_BYTES=total)
    [model] = found["models"]
    assert 32 <= model["rows"] < 512  # the memory decides
    assert model["opened"] + model["grown"] <= total / 2


def test_several_models_have_equal_shares(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", precision="fp16", **WIDE, num_decoder_layers=3)
    found = run("memory.py", *[bundle.path] * 3, STAND_IN_BYTES=6 * GIB)
    rows = [model["rows"] for model in found["models"]]
    assert rows == [rows[0]] * 3
    assert rows[0] >= 128
    for model in found["models"]:
        assert model["opened"] + model["grown"] <= 6 * GIB / 4

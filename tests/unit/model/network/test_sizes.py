"""Parameter counts of the presets, sinusoidal positions, initialisation, state names."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from model.bundle.config import ModelConfig, preset
from model.bundle.limits import default_max_new_tokens
from model.network.positions import sinusoidal_positions
from model.network.transformer import Transformer


def closed_form(config: ModelConfig) -> int:
    """The number of parameters, by arithmetic on the paper's description."""
    d, f, v = config.d_model, config.ffn_dim, config.vocab_size
    attention = 4 * (d * d + d)
    feed_forward = d * f + f + f * d + d
    norm = 2 * d
    encoder = config.num_encoder_layers * (attention + feed_forward + 2 * norm)
    look_back = 2 * d * d + d if config.decoder == "ssru" else attention
    decoder = config.num_decoder_layers * (look_back + attention + feed_forward + 3 * norm)
    matrices = {"all": 1, "target": 2, "none": 3}[config.embedding_tying]
    return (
        encoder
        + decoder
        + matrices * v * d
        + (2 * norm if config.norm == "pre" else 0)
        + (2 * config.max_positions * d if config.positions == "learned" else 0)
        + (v if config.output_bias else 0)
    )


# The paper's table 3 says 65 and 213 million for `base` and `big`, with "about 37,000" entries.
@pytest.mark.parametrize(
    ("name", "vocab_size", "count"),
    [
        ("tiny", 10_000, 2_605_056),
        ("small", 8_000, 8_893_440),
        ("base", 37_000, 63_082_496),
        ("big", 37_000, 214_245_376),
        ("student-tiny", 32_000, 16_907_008),
        ("student-base-memory", 32_000, 31_248_896),
        ("student-base", 32_000, 42_686_720),
    ],
)
def test_presets_have_their_size(name: str, vocab_size: int, count: int) -> None:
    config = preset(name, vocab_size)
    with torch.device("meta"):  # counting needs no memory
        model = Transformer(config)
    assert model.num_parameters() == closed_form(config) == count


@pytest.mark.parametrize(
    "overrides",
    [
        {"embedding_tying": "none", "output_bias": True},
        {"embedding_tying": "target", "norm": "pre"},
        {"positions": "learned", "max_positions": 77},
        {"positions": "none"},
    ],
)
def test_options_change_the_size_as_they_should(overrides: dict[str, Any]) -> None:
    config = preset("tiny", 100, **overrides)
    assert Transformer(config).num_parameters() == closed_form(config)


def test_state_names_are_the_ones_that_export_reads() -> None:
    options: dict[str, Any] = dict(norm="pre", positions="learned", output_bias=True)
    names = set(Transformer(preset("tiny", 50, **options)).state_dict())
    expected = {
        "source_embedding.weight",
        "target_embedding.weight",
        "output_projection.weight",
        "output_projection.bias",
        "source_positions.weight",
        "target_positions.weight",
    }
    parts = {
        "encoder": ["self_attention", "feed_forward"],
        "decoder": ["self_attention", "cross_attention", "feed_forward"],
    }
    for stack, sublayers in parts.items():
        linears = [
            f"layers.{i}.{sublayer}{part}"
            for i in range(4)
            for sublayer in sublayers
            for part in (
                [".inner", ".outer", "_norm"]
                if sublayer == "feed_forward"
                else [".query", ".key", ".value", ".output", "_norm"]
            )
        ]
        for module in [*linears, "final_norm"]:
            expected |= {f"{stack}.{module}.weight", f"{stack}.{module}.bias"}
    assert names == expected


def test_sinusoid_is_the_formula() -> None:
    table = sinusoidal_positions(300, 16)
    for position in (0, 1, 17, 299):
        for i in range(8):
            angle = position / 10_000 ** (2 * i / 16)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_one_sine_repeats_but_no_position_does() -> None:
    """After 355 = 113 * 3.14159 positions the first sine is back; the slower ones are not."""
    table = sinusoidal_positions(2_048, 64).double()
    assert abs(table[355, 0] - table[0, 0]) < 1e-4
    assert (table[355] - table[0]).norm() > 2.0
    distances = torch.cdist(table, table) + 10.0 * torch.eye(2_048)
    assert distances.amin() > 0.5


@pytest.mark.parametrize("offset", [1, 5, 64])
def test_a_fixed_offset_is_one_linear_map(offset: int) -> None:
    """Section 3.5: PE[pos + k] is a linear function of PE[pos], the same for every pos."""
    table = sinusoidal_positions(200, 12).double()
    rotation = torch.zeros(12, 12, dtype=torch.float64)
    for i in range(6):
        angle = offset / 10_000 ** (2 * i / 12)
        sin, cos = math.sin(angle), math.cos(angle)
        rotation[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[cos, sin], [-sin, cos]])
    moved = table[:-offset] @ rotation.T
    torch.testing.assert_close(moved, table[offset:], rtol=0, atol=1e-6)


def test_positions_are_added_to_embeddings() -> None:
    model = Transformer(preset("tiny", 50)).eval()
    seen: list[torch.Tensor] = []
    model.encoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    ids = torch.tensor([[5, 6, 5]])
    model.encode(ids)
    expected = model.source_embedding(ids) * math.sqrt(128) + sinusoidal_positions(3, 128)
    torch.testing.assert_close(seen[0][0], expected[0])


def test_initial_weights_have_their_distribution() -> None:
    torch.manual_seed(0)
    model = Transformer(preset("small", 5_000))
    embedding = model.target_embedding.weight
    assert embedding.std().item() == pytest.approx(256**-0.5, rel=0.02)
    assert embedding.mean().item() == pytest.approx(0.0, abs=1e-3)
    inner = next(model.encoder.each_layer()).feed_forward.inner
    bound = math.sqrt(6 / (256 + 1024))
    assert inner.weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert inner.weight.abs().max().item() <= bound
    assert (inner.bias == 0).all()


@pytest.mark.parametrize(
    ("num_source_tokens", "max_positions", "limit"), [(1, 512, 52), (10, 512, 70), (400, 512, 512)]
)
def test_default_length_limit(num_source_tokens: int, max_positions: int, limit: int) -> None:
    assert default_max_new_tokens(num_source_tokens, max_positions) == limit

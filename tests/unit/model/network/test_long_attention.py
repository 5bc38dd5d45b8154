"""Properties of the kinds of attention for long sources: which positions see which."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.bundle.config import ConfigError, ModelConfig
from model.network.attention.kinds import ENCODER_ATTENTION
from model.network.attention.linformer import LowRankAttention, project_positions
from model.network.attention.local import local_mask
from model.network.attention.lsh import draw_rotations, hash_buckets, lsh_mask, sorted_chunks
from model.network.attention.multi_head import MultiHeadAttention, scaled_dot_product_attention
from model.network.attention.strided import strided_mask
from model.network.checkpoint import load_checkpoint, save_checkpoint
from model.network.transformer import Transformer
from tests.factories import random_model, tiny_config, tiny_tokenizer

KINDS: list[dict[str, Any]] = [
    {"encoder_attention": "local", "attention_window": 3},
    {"encoder_attention": "strided", "attention_window": 3},
    {"encoder_attention": "lsh", "attention_window": 4, "attention_buckets": 4},
    {"encoder_attention": "linformer", "attention_rank": 5},
    {"cross_attention": "linformer", "attention_rank": 5},
    {"encoder_attention": "linformer", "cross_attention": "linformer", "attention_rank": 5},
]
lengths = st.integers(1, 20)
windows = st.integers(1, 8)
seeds = st.integers(0, 2**16)


def attention_of(kind: str, **fields: Any) -> MultiHeadAttention:
    torch.manual_seed(0)
    config = ModelConfig(12, 16, 1, 1, num_heads=4, ffn_dim=8, encoder_attention=kind, **fields)  # type: ignore[arg-type]
    return ENCODER_ATTENTION[config.encoder_attention](config).eval()


# --- local and strided ----------------------------------------------------------------------------


@given(length=lengths, window=windows)
def test_local_attention_sees_neighbours_on_both_sides(length: int, window: int) -> None:
    mask = local_mask(length, window)
    for i, j in itertools.product(range(length), repeat=2):
        assert bool(mask[i, j]) == (-window <= i - j <= window)


@torch.no_grad()
def test_each_layer_reaches_one_window_further() -> None:
    torch.manual_seed(0)
    model = Transformer(tiny_config(encoder_attention="local", attention_window=3)).eval().double()
    source = torch.randint(4, 300, (1, 30))
    before = model.encode(source)
    changed = source.clone()
    changed[0, 12] = 301
    moved = (model.encode(changed) - before)[0].abs().amax(-1) > 0
    assert [i for i in range(30) if moved[i]] == list(range(12 - 2 * 3, 12 + 2 * 3 + 1))


@settings(max_examples=25, deadline=None)
@given(length=lengths, stride=windows, num_heads=st.integers(2, 5))
def test_strided_attention_sees_neighbours_or_every_nth(
    length: int, stride: int, num_heads: int
) -> None:
    mask = strided_mask(length, stride, num_heads)
    assert mask.shape == (num_heads, length, length)
    for head, i, j in itertools.product(range(num_heads), range(length), range(length)):
        near = head < num_heads // 2
        expected = abs(i - j) <= stride if near else (i - j) % stride == 0
        assert bool(mask[head, i, j]) == expected


@given(length=lengths, stride=windows)
def test_two_strided_steps_connect_any_two_positions(length: int, stride: int) -> None:
    near, far = strided_mask(length, stride, 2).float()
    assert ((near @ far) > 0).all()


@pytest.mark.parametrize("kind", ["local", "strided"])
def test_a_mask_is_all_that_differs_from_full_attention(kind: str) -> None:
    attention = attention_of(kind, attention_window=3)
    full = attention_of("full")
    full.load_state_dict(attention.state_dict())
    states, valid = torch.randn(2, 11, 16), torch.arange(11) < torch.tensor([[11], [7]])
    seen = local_mask(11, 3) if kind == "local" else strided_mask(11, 3, 4)
    found = attention(states, attention.keys_values(states), valid[:, None, None])
    expected = full(states, full.keys_values(states), valid[:, None, None] & seen)
    torch.testing.assert_close(found, expected)


# --- hashed ---------------------------------------------------------------------------------------


def hashed(seed: int, length: int, *, rounds: int = 2, buckets: int = 4) -> tuple[Tensor, Tensor]:
    """Queries [2, 3, length, 8] and their buckets [2, rounds, 3, length]."""
    torch.manual_seed(seed)
    query = torch.randn(2, 3, length, 8)
    return query, hash_buckets(query, draw_rotations(rounds, 3, 8, buckets))


@settings(max_examples=25, deadline=None)
@given(seed=seeds, scale=st.floats(0.1, 10.0))
def test_a_bucket_follows_from_the_direction_alone(seed: int, scale: float) -> None:
    torch.manual_seed(seed)
    query, rotations = torch.randn(1, 3, 6, 8).double(), draw_rotations(2, 3, 8, 6).double()
    buckets = hash_buckets(query, rotations)
    assert buckets.amin() >= 0
    assert buckets.amax() < 6
    assert torch.equal(hash_buckets(query * scale, rotations), buckets)
    opposite = hash_buckets(-query, rotations)
    assert torch.equal(opposite, (buckets + 3) % 6)


def test_similar_vectors_share_a_bucket_more_often() -> None:
    torch.manual_seed(0)
    rotations = draw_rotations(500, 1, 8, 8)
    query = torch.randn(1, 1, 1, 8)
    shares = []
    for noise in (0.1, 0.5, 2.0):
        other = query + noise * torch.randn(1, 1, 1, 8)
        same = hash_buckets(query, rotations) == hash_buckets(other, rotations)
        shares.append(same.float().mean().item())
    assert shares[0] > shares[1] > shares[2]


@settings(max_examples=30, deadline=None)
@given(seed=seeds, length=lengths, chunk=windows)
def test_hashed_attention_stays_within_buckets_and_chunks(
    seed: int, length: int, chunk: int
) -> None:
    _, buckets = hashed(seed, length)
    valid = torch.ones(2, length, dtype=torch.bool)
    mask, chunks = lsh_mask(buckets, valid, chunk), sorted_chunks(buckets, valid, chunk)
    for batch, head, i, j in itertools.product(range(2), range(3), range(length), range(length)):
        met = any(
            buckets[batch, r, head, i] == buckets[batch, r, head, j]
            and abs(int(chunks[batch, r, head, i] - chunks[batch, r, head, j])) <= 1
            for r in range(2)
        )
        if i != j:
            assert bool(mask[batch, head, i, j]) == met
    others = (mask & ~torch.eye(length, dtype=torch.bool)).any(-1)
    assert torch.equal(mask.diagonal(dim1=-2, dim2=-1), ~others)  # itself alone, or not at all


@given(seed=seeds, length=lengths, padding=st.integers(1, 9), chunk=windows)
@settings(max_examples=30, deadline=None)
def test_padding_moves_nothing_between_chunks(
    seed: int, length: int, padding: int, chunk: int
) -> None:
    _, buckets = hashed(seed, length + padding)
    valid = (torch.arange(length + padding) < length).expand(2, -1)
    padded = lsh_mask(buckets, valid, chunk)[..., :length, :]
    alone = lsh_mask(buckets[..., :length], valid[:, :length], chunk)
    assert torch.equal(padded[..., :length], alone)
    assert not padded[..., length:].any()


def test_another_round_shows_more_and_hides_nothing() -> None:
    _, buckets = hashed(0, 40, rounds=4)
    valid = torch.ones(2, 40, dtype=torch.bool)
    itself = torch.eye(40, dtype=torch.bool)
    seen = [lsh_mask(buckets[:, :rounds], valid, 8) & ~itself for rounds in (1, 2, 4)]
    for fewer, more in itertools.pairwise(seen):
        assert (fewer <= more).all()
        assert fewer.sum() < more.sum()


def test_buckets_are_stored_with_the_weights(tmp_path: Path) -> None:
    config = tiny_config(encoder_attention="lsh", attention_window=4, attention_buckets=4)
    tokenizer = tiny_tokenizer(tmp_path)
    model = Transformer(config).eval()
    save_checkpoint(tmp_path / "model", model, tokenizer, languages={"source": "a", "target": "b"})
    torch.manual_seed(1)  # no other hash functions, whatever is drawn when it is made
    again = load_checkpoint(tmp_path / "model").model
    source = torch.randint(4, 300, (2, 30))
    with torch.no_grad():
        assert torch.equal(model.encode(source), again.encode(source))


# --- low rank -------------------------------------------------------------------------------------


def test_linformer_keeps_k_rows() -> None:
    attention = attention_of("linformer", attention_rank=5, max_positions=40)
    for length in (1, 5, 40):
        key, value = attention.keys_values(torch.randn(2, length, 16))
        assert key.shape == value.shape == (2, 4, 5, 4)


@torch.no_grad()
def test_an_identity_makes_linformer_full_attention() -> None:
    attention = attention_of("linformer", attention_rank=9, max_positions=9)
    assert isinstance(attention, LowRankAttention)
    for projection in (attention.key_projection, attention.value_projection):
        projection.copy_(torch.eye(9))
    states = torch.randn(2, 9, 16)
    full = attention_of("full")
    full.load_state_dict(
        {n: t for n, t in attention.state_dict().items() if not n.endswith("projection")}
    )
    expected = full(states, full.keys_values(states))
    torch.testing.assert_close(attention(states, attention.keys_values(states)), expected)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, length=lengths, padding=st.integers(0, 5))
def test_projected_positions_are_weighted_sums_of_tokens(
    seed: int, length: int, padding: int
) -> None:
    torch.manual_seed(seed)
    states, weights = torch.randn(1, 2, length + padding, 4), torch.randn(3, 30)
    valid = (torch.arange(length + padding) < length)[None, None, :, None]
    found = project_positions(states, weights, valid)
    expected = torch.einsum("kn,bhnd->bhkd", weights[:, :length], states[:, :, :length])
    torch.testing.assert_close(found, expected)


# --- all kinds ------------------------------------------------------------------------------------


@pytest.fixture(params=KINDS, ids=lambda fields: "-".join(map(str, fields.values())))
def model(request: pytest.FixtureRequest) -> Transformer:
    return random_model(tiny_config(**request.param)).double()


@torch.no_grad()
def test_recorded_weights_are_those_of_plain_attention(model: Transformer) -> None:
    source, target = torch.randint(4, 300, (1, 12)), torch.randint(4, 300, (1, 7))
    weights = model.attention_weights(source, target)
    for layer in (*weights.encoder, *weights.decoder_cross):
        torch.testing.assert_close(layer.sum(-1), torch.ones_like(layer[..., 0]))
    config = model.config
    keys = 5 if config.encoder_attention == "linformer" else 12
    assert weights.encoder[0].shape == (1, 2, 12, keys)
    if config.encoder_attention == "local":
        assert (weights.encoder[0][..., ~local_mask(12, 3)] == 0).all()


def test_every_weight_learns(model: Transformer) -> None:
    source, target = torch.randint(4, 300, (3, 12)), torch.randint(4, 300, (3, 7))
    model(source, target).square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0 or name.endswith("key.bias"), name


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoder_attention": "sparse"}, "encoder_attention must be one of full, local, strided"),
        ({"cross_attention": "local"}, "cross_attention must be one of full, linformer"),
        ({"attention_window": 0}, "attention_window must be a positive integer, not 0"),
        ({"attention_buckets": 5}, "attention_buckets must be even, not 5"),
        ({"max_source_positions": 0}, "max_source_positions must be a positive integer, not 0"),
        ({"encoder_attention": "strided", "num_heads": 1}, "num_heads must be at least 2"),
    ],
)
def test_bad_fields_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tiny_config(**fields)


def test_a_model_of_before_is_written_as_before() -> None:
    written = tiny_config().to_dict()
    assert not {"encoder_attention", "attention_window", "max_source_positions"} & written.keys()
    for fields in KINDS:
        config = tiny_config(**fields)
        assert ModelConfig.from_dict(config.to_dict()) == config


def test_equal_scores_give_a_mean() -> None:
    """The reference that all kinds mask: no score differs, so that the weights are equal."""
    query, value = torch.zeros(1, 1, 6, 4), torch.randn(1, 1, 6, 4)
    mixed, _ = scaled_dot_product_attention(query, query, value, local_mask(6, 1))
    torch.testing.assert_close(mixed[0, 0, 2], value[0, 0, 1:4].mean(0))

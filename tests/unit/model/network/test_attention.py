"""Properties of attention, and a worked example computed by hand elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from model.bundle.config import ModelConfig
from model.network.attention.multi_head import (
    MultiHeadAttention,
    causal_mask,
    scaled_dot_product_attention,
)


def test_worked_example_to_six_digits() -> None:
    np.random.seed(42)
    weights = [torch.from_numpy(np.random.randint(3, size=(3, 3))).double() for _ in range(3)]
    words = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.float64)
    query, key, value = (words @ weight for weight in weights)

    attended, _ = scaled_dot_product_attention(query, key, value)

    expected = [
        [0.98522025, 1.74174051, 0.75652026],
        [0.90965265, 1.40965265, 0.5],
        [0.99851226, 1.75849334, 0.75998108],
        [0.99560386, 1.90407309, 0.90846923],
    ]
    np.testing.assert_allclose(attended.numpy(), expected, rtol=0, atol=1e-8)


sizes = st.integers(min_value=1, max_value=6)


@settings(max_examples=40, deadline=None)
@given(queries=sizes, keys=sizes, width=sizes, seed=st.integers(0, 2**16))
def test_rows_of_weights_sum_to_one_over_what_the_mask_allows(
    queries: int, keys: int, width: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(queries, width, generator=generator) * 5
    key = torch.randn(keys, width, generator=generator) * 5
    mask = torch.rand(queries, keys, generator=generator) < 0.6

    attended, weights = scaled_dot_product_attention(query, key, key, mask)

    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all()
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).float())  # 0 if nothing is allowed
    assert not attended.isnan().any()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**16), causal=st.booleans(), masked=st.booleans())
def test_fused_attention_is_the_same_function(seed: int, causal: bool, masked: bool) -> None:
    torch.manual_seed(seed)
    config = ModelConfig(12, 16, 1, 1, num_heads=4, ffn_dim=8)
    attention = MultiHeadAttention(config).eval()
    states = torch.randn(3, 5, 16)
    mask = None
    if masked and not causal:
        mask = (torch.rand(3, 5) < 0.5)[:, None, None, :]  # now and then a row has nothing to see
    keys_values = attention.keys_values(states)

    fused = attention(states, keys_values, mask, causal)
    recorded = attention(states, keys_values, mask, causal, record=[])

    torch.testing.assert_close(fused, recorded, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_half_precision_on_a_cpu_is_the_same_function_and_trains(causal: bool) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(ModelConfig(12, 16, 1, 1, num_heads=4, ffn_dim=8))
    states = torch.randn(3, 5, 16)
    mask = None if causal else torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0] * 5]).bool()
    mask = None if mask is None else mask[:, None, None, :]
    found = []
    for narrow in (False, True):
        attention.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            output = attention(states, attention.keys_values(states), mask, causal)
        output.float().square().sum().backward()
        gradient = attention.value.weight.grad
        assert gradient is not None
        found.append((output.detach().float(), gradient.clone()))
    for wide, half in zip(*found, strict=True):
        assert float((half - wide).norm() / wide.norm()) < 0.02


def test_each_head_is_attention_on_its_own_slice() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(ModelConfig(12, 8, 1, 1, num_heads=2, ffn_dim=8)).eval()
    states = torch.randn(2, 5, 8)
    weights: list[torch.Tensor] = []

    output = attention(states, attention.keys_values(states), record=weights)

    heads = []
    for head, columns in enumerate((slice(0, 4), slice(4, 8))):
        query, key, value = (
            F.linear(states, layer.weight[columns], layer.bias[columns])
            for layer in (attention.query, attention.key, attention.value)
        )
        mixed, head_weights = scaled_dot_product_attention(query, key, value)
        torch.testing.assert_close(weights[0][:, head], head_weights)
        heads.append(mixed)
    torch.testing.assert_close(output, attention.output(torch.cat(heads, dim=-1)))


@pytest.mark.parametrize("length", [1, 2, 7])
def test_causal_mask_allows_the_past_and_the_present(length: int) -> None:
    mask = causal_mask(length)
    for query in range(length):
        for key in range(length):
            assert bool(mask[query, key]) == (key <= query)


def test_dropped_weights_keep_their_expectation() -> None:
    torch.manual_seed(0)
    query, key, value = torch.zeros(20_000, 1, 4), torch.zeros(1, 4), torch.ones(1, 1)
    attended, weights = scaled_dot_product_attention(query, key, value, dropout=0.5)
    assert (weights == 1).all()  # reported before dropout
    assert set(attended.flatten().tolist()) == {0.0, 2.0}
    assert attended.mean().item() == pytest.approx(1.0, abs=0.05)


def test_the_scores_are_scaled_dot_products() -> None:
    """[2, 3] . [1, 4] = 2 * 1 + 3 * 4 = 14, and 14 / sqrt(2) is what softmax sees."""
    query, keys = torch.tensor([[2.0, 3.0]]), torch.tensor([[1.0, 4.0], [0.0, 0.0]])
    assert (query @ keys.T).tolist() == [[14.0, 0.0]]
    _, weights = scaled_dot_product_attention(query.double(), keys.double(), keys.double())
    scores = weights.log()
    assert (scores[0, 0] - scores[0, 1]).item() == pytest.approx(14 / 2**0.5)


@given(seed=st.integers(0, 2**16), wanted=st.integers(0, 5))
def test_attention_is_a_soft_lookup(seed: int, wanted: int) -> None:
    """A query that is a key finds its value as in a dictionary; a query of zeros finds the mean."""
    torch.manual_seed(seed)
    keys, values = torch.eye(6), torch.randn(6, 4)
    found, weights = scaled_dot_product_attention(100.0 * keys[wanted : wanted + 1], keys, values)
    assert weights.argmax() == wanted
    torch.testing.assert_close(found[0], values[wanted])
    found, _ = scaled_dot_product_attention(torch.zeros(1, 6), keys, values)
    torch.testing.assert_close(found[0], values.mean(0))


@settings(deadline=None)
@given(seed=st.integers(0, 2**16), length=st.integers(1, 8))
def test_without_projections_a_position_looks_at_itself_most(seed: int, length: int) -> None:
    """Why there are W_Q, W_K and W_V: X X^T is symmetric, and no vector is more like x than x."""
    torch.manual_seed(seed)
    states = F.normalize(torch.randn(length, 5), dim=-1)
    mixed, weights = scaled_dot_product_attention(states, states, states)
    assert (weights.argmax(-1) == torch.arange(length)).all()
    ratio = weights / weights.diagonal().unsqueeze(-1)  # undoes the rows' different sums
    torch.testing.assert_close(ratio, ratio.T)
    assert (mixed.norm(dim=-1) <= 1 + 1e-6).all()  # weighted means of the same vectors

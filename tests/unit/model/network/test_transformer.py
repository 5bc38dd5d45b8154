"""Properties of the whole network: who may see what, and that caching changes nothing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from model.bundle.config import ConfigError, ModelConfig
from model.network.transformer import Transformer

VOCAB = 23
OPTIONS: list[dict[str, Any]] = [
    {},
    {"norm": "pre"},
    {"positions": "learned", "activation": "gelu"},
    {"embedding_tying": "none", "output_bias": True, "activation": "silu"},
    {"embedding_tying": "target", "norm": "pre", "positions": "learned", "scale_embeddings": False},
]
OTHER_NETWORKS: list[dict[str, Any]] = [
    {"decoder": "ssru"},
    {"decoder": "ssru", "norm": "pre", "embed_start": False},
    {"encoder_attention": "local", "attention_window": 3},
    {"encoder_attention": "strided", "attention_window": 3},
    {"encoder_attention": "lsh", "attention_window": 4, "attention_buckets": 4},
    {"encoder_attention": "linformer", "attention_rank": 5},
    {"cross_attention": "linformer", "attention_rank": 5},
    {"encoder_attention": "linformer", "cross_attention": "linformer", "attention_rank": 5},
]


def make(**overrides: Any) -> Transformer:
    fields: dict[str, Any] = dict(
        vocab_size=VOCAB,
        d_model=16,
        num_encoder_layers=2,
        num_decoder_layers=3,
        num_heads=4,
        ffn_dim=24,
        max_positions=32,
    )
    torch.manual_seed(0)
    model = Transformer(ModelConfig.from_dict({**fields, **overrides})).eval().double()
    with torch.no_grad():  # biases and norms start at 0 and 1, where mistakes can hide
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def random_ids(*shape: int, seed: int = 1) -> Tensor:
    return torch.randint(4, VOCAB, shape, generator=torch.Generator().manual_seed(seed))


def name_of(options: dict[str, Any]) -> str:
    return "-".join(map(str, options.values())) or "paper"


@pytest.fixture(params=[*OPTIONS, *OTHER_NETWORKS], ids=name_of)
def model(request: pytest.FixtureRequest) -> Transformer:
    return make(**request.param)


@pytest.fixture(params=OPTIONS, ids=name_of)
def with_full_attention(request: pytest.FixtureRequest) -> Transformer:
    return make(**request.param)


@torch.no_grad()
def test_no_output_depends_on_a_later_target_token(model: Transformer) -> None:
    source, target = random_ids(2, 6), random_ids(2, 9, seed=2)
    before = model(source, target)
    for position in range(9):
        changed = target.clone()
        changed[:, position] = (changed[:, position] + 1) % VOCAB
        after = model(source, changed)
        assert torch.equal(after[:, :position], before[:, :position])
        # ... and the perturbation was not a void one: everything from there on moves.
        assert ((after - before)[:, position:].abs().amax(-1) > 1e-9).all()


@torch.no_grad()
def test_every_output_depends_on_every_source_token(model: Transformer) -> None:
    source, target = random_ids(2, 6), random_ids(2, 4, seed=2)
    before = model(source, target)
    for position in range(6):
        changed = source.clone()
        changed[:, position] = (changed[:, position] + 1) % VOCAB
        assert ((model(source, target) - model(changed, target)).abs().amax(-1) > 1e-9).all()
    assert torch.equal(model(source, target), before)


@torch.no_grad()
@pytest.mark.parametrize("padding", [1, 2, 7])
def test_source_padding_changes_nothing(model: Transformer, padding: int) -> None:
    source, target = random_ids(2, 5), random_ids(2, 4, seed=2)
    alone = model(source, target)
    for filler in (model.config.pad_id, 7):  # what stands under the mask must not matter
        padded = torch.cat((source, torch.full((2, padding), filler)), dim=1)
        mask = torch.arange(5 + padding).expand(2, -1) < 5
        torch.testing.assert_close(model(padded, target, mask), alone, rtol=0, atol=1e-12)
        memory = model.encode(padded, mask)[:, :5]
        torch.testing.assert_close(memory, model.encode(source), rtol=0, atol=1e-12)
    padded = torch.cat((source, torch.zeros(2, padding, dtype=torch.long)), dim=1)
    torch.testing.assert_close(model(padded, target), alone, rtol=0, atol=1e-12)  # default mask


@torch.no_grad()
def test_target_padding_changes_nothing_before_it(model: Transformer) -> None:
    source, target = random_ids(2, 5), random_ids(2, 4, seed=2)
    padded = torch.cat((target, torch.zeros(2, 3, dtype=torch.long)), dim=1)
    logits = model(source, padded)[:, :4]
    torch.testing.assert_close(logits, model(source, target), rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_sentence_in_a_batch_comes_out_as_alone(model: Transformer) -> None:
    lengths = (1, 4, 9, 17)
    source, target = random_ids(4, 17), random_ids(4, 5, seed=2)
    mask = torch.arange(17).expand(4, -1) < torch.tensor(lengths).unsqueeze(1)
    batched = model(source, target, mask)
    for row, length in enumerate(lengths):
        alone = model(source[row : row + 1, :length], target[row : row + 1])
        torch.testing.assert_close(batched[row], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_without_positions_the_encoder_is_permutation_equivariant(norm: str) -> None:
    source = random_ids(1, 5)
    model = make(positions="none", norm=norm)
    memory = model.encode(source)
    for order in map(list, itertools.permutations(range(5))):
        torch.testing.assert_close(model.encode(source[:, order]), memory[:, order])
    with_positions = make(norm=norm)
    order = [1, 0, 2, 3, 4]
    moved = with_positions.encode(source[:, order]) - with_positions.encode(source)[:, order]
    assert moved.abs().max() > 1e-3  # positions are what breaks it


@torch.no_grad()
def test_cached_decode_equals_the_full_forward_pass(model: Transformer) -> None:
    source, target = random_ids(3, 6), random_ids(3, 8, seed=2)
    mask = torch.arange(6).expand(3, -1) < torch.tensor([[6], [2], [4]])
    full = model(source, target, mask)
    cache = model.start_cache(model.encode(source, mask), mask)
    for position in range(8):
        assert cache.num_positions == position
        logits = model.step(target[:, position], cache)
        torch.testing.assert_close(logits, full[:, position], rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_selected_cache_continues_its_rows(model: Transformer) -> None:
    source, target = random_ids(3, 6), random_ids(3, 5, seed=2)
    mask = torch.arange(6).expand(3, -1) < torch.tensor([[6], [2], [4]])
    cache = model.start_cache(model.encode(source, mask), mask)
    for position in range(4):
        model.step(target[:, position], cache)
    rows = torch.tensor([2, 0, 2, 1])  # permuted, one twice
    chosen = cache.select(rows)
    logits = model.step(target[rows, 4], chosen)
    expected = model(source, target, mask)[rows, -1]
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)
    assert cache.num_positions == 4  # the one that it was taken from did not move
    logits = model.step(target[:, 4], cache)
    torch.testing.assert_close(logits, model(source, target, mask)[:, -1], rtol=0, atol=1e-12)


@torch.no_grad()
def test_attention_weights_of_every_layer_sum_to_one(with_full_attention: Transformer) -> None:
    model = with_full_attention
    source, target = random_ids(2, 6), random_ids(2, 5, seed=2)
    mask = torch.arange(6).expand(2, -1) < torch.tensor([[6], [3]])
    weights = model.attention_weights(source, target, mask)
    shapes = {"encoder": (2, 4, 6, 6), "decoder_self": (2, 4, 5, 5), "decoder_cross": (2, 4, 5, 6)}
    depths = {"encoder": 2, "decoder_self": 3, "decoder_cross": 3}
    for name, shape in shapes.items():
        layers = getattr(weights, name)
        assert len(layers) == depths[name]
        for layer in layers:
            assert layer.shape == shape
            torch.testing.assert_close(layer.sum(-1), torch.ones(shape[:-1]).double())
    for layer in weights.decoder_self:
        assert (layer.triu(diagonal=1) == 0).all()
    for layer in (*weights.encoder, *weights.decoder_cross):
        assert (layer[1, :, :, 3:] == 0).all()


def test_a_row_of_nothing_but_padding_gives_no_nan_in_bfloat16_training() -> None:
    model = make().float().train()
    source, target = random_ids(3, 6), random_ids(3, 5, seed=2)
    source[1] = model.config.pad_id
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(source, target)
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), target.flatten())
    torch.autograd.backward(loss)
    assert not logits.isnan().any()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@torch.no_grad()
def test_bfloat16_autocast_stays_near_float32(model: Transformer) -> None:
    model = model.float()
    source, target = random_ids(3, 6), random_ids(3, 5, seed=2)
    exact = model(source, target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(source, target).float()
    assert (rough - exact).abs().max() < 0.05 * exact.abs().max()


@torch.no_grad()
def test_hidden_states_project_to_the_logits(model: Transformer) -> None:
    source, target = random_ids(2, 6), random_ids(2, 5, seed=2)
    memory = model.encode(source)
    hidden = model.decode_hidden(target, memory)
    assert hidden.shape == (2, 5, 16)
    kept = torch.tensor([[True] * 5, [True, True, False, False, False]])
    logits = model.project(hidden[kept])
    torch.testing.assert_close(logits, model(source, target)[kept], rtol=0, atol=1e-12)


def test_dropout_acts_in_training_only() -> None:
    model = make(dropout=0.3, attention_dropout=0.3, activation_dropout=0.3)
    source, target = random_ids(2, 6), random_ids(2, 5, seed=2)
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    assert not torch.equal(model(source, target), model(source, target))


@pytest.mark.parametrize("field", ["dropout", "attention_dropout", "activation_dropout"])
def test_every_dropout_is_wired(field: str) -> None:
    fields = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0)
    source, target = random_ids(2, 6), random_ids(2, 5, seed=2)
    silent = make(**fields).train()
    assert torch.equal(silent(source, target), silent(source, target))
    noisy = make(**{**fields, field: 0.5}).train()
    assert not torch.equal(noisy(source, target), noisy(source, target))


def test_dropout_falls_on_embeddings_with_positions() -> None:
    """Section 5.4: on the sums, on both sides."""
    model = make(dropout=0.5).train()
    seen: list[Tensor] = []
    for stack in (model.encoder, model.decoder):
        stack.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(random_ids(4, 20), random_ids(4, 20, seed=2))
    for states in seen:
        assert 0.4 < (states == 0).double().mean().item() < 0.6


@pytest.mark.parametrize(
    ("tying", "shared"), [("all", 3), ("target", 2), ("none", 1)], ids=["all", "target", "none"]
)
def test_tying_shares_exactly_the_named_matrices(tying: str, shared: int) -> None:
    model = make(embedding_tying=tying)
    matrices = (
        model.output_projection.weight,
        model.target_embedding.weight,
        model.source_embedding.weight,
    )
    assert all(matrix is matrices[0] for matrix in matrices[:shared])
    assert len({id(matrix) for matrix in matrices}) == 4 - shared


def test_embeddings_are_scaled_by_the_root_of_the_width() -> None:
    seen: list[Tensor] = []
    for scale in (True, False):
        model = make(scale_embeddings=scale, positions="none")
        model.encoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        model.encode(random_ids(1, 4))
    torch.testing.assert_close(seen[0], seen[1] * 4.0)  # sqrt(16)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_norms_stand_where_the_option_says(norm: str) -> None:
    model = make(norm=norm)
    names = model.state_dict().keys()
    assert ("encoder.final_norm.weight" in names) == (norm == "pre")
    assert ("decoder.final_norm.weight" in names) == (norm == "pre")
    # Post-norm: silencing every sublayer leaves norm(x); pre-norm: it leaves x on the residual.
    layer = next(model.encoder.each_layer())
    for name, parameter in layer.named_parameters():
        if name.endswith(("output.weight", "output.bias", "outer.weight", "outer.bias")):
            torch.nn.init.zeros_(parameter)
    states = torch.randn(1, 3, 16).double()
    expected = states
    if norm == "post":
        expected = layer.feed_forward_norm(layer.self_attention_norm(states))
    torch.testing.assert_close(layer(states, None), expected)


def test_more_tokens_than_positions_are_refused() -> None:
    model = make()
    limit = model.config.max_positions
    model(random_ids(1, limit), random_ids(1, limit))  # the limit itself is fine
    with pytest.raises(ValueError, match="33 tokens exceeds max_positions"):
        model.encode(random_ids(1, limit + 1))
    with pytest.raises(ValueError, match="max_positions"):
        model(random_ids(1, 3), random_ids(1, limit + 1))
    source = random_ids(1, 3)
    cache = model.start_cache(model.encode(source), source != 0)
    for _ in range(limit):
        model.step(torch.tensor([4]), cache)
    with pytest.raises(ValueError, match="max_positions"):
        model.step(torch.tensor([4]), cache)


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_heads", 3), ("activation", "tanh"), ("dropout", 1.0), ("d_model", 0), ("eos_id", 99)],
)
def test_a_bad_configuration_names_its_field(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=field if field != "eos_id" else "special ids"):
        make(**{field: value})

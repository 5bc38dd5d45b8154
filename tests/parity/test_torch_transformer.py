"""Our two stacks compared with PyTorch's own, another implementation of the same paper."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from model.bundle.config import ModelConfig
from model.network.attention.multi_head import MultiHeadAttention
from model.network.layers import EncoderLayer
from model.network.transformer import Transformer
from tests.factories import random_model, tiny_config


def attention_state(ours: MultiHeadAttention) -> dict[str, Tensor]:
    projections = (ours.query, ours.key, ours.value)
    return {
        "in_proj_weight": torch.cat([projection.weight for projection in projections]),
        "in_proj_bias": torch.cat([projection.bias for projection in projections]),
        "out_proj.weight": ours.output.weight,
        "out_proj.bias": ours.output.bias,
    }


def layer_state(ours: Any) -> dict[str, Tensor]:
    """The weights of an encoder or decoder layer under PyTorch's names."""
    is_encoder = isinstance(ours, EncoderLayer)
    modules: dict[str, nn.Module] = {
        "linear1": ours.feed_forward.inner,
        "linear2": ours.feed_forward.outer,
        "norm1": ours.self_attention_norm,
        "norm2": ours.feed_forward_norm if is_encoder else ours.cross_attention_norm,
    }
    attentions = {"self_attn": ours.self_attention}
    if not is_encoder:
        modules["norm3"] = ours.feed_forward_norm
        attentions["multihead_attn"] = ours.cross_attention
    state = {
        f"{theirs}.{name}": tensor
        for theirs, module in modules.items()
        for name, tensor in module.state_dict().items()
    }
    for theirs, attention in attentions.items():
        state |= {f"{theirs}.{name}": value for name, value in attention_state(attention).items()}
    return state


def build_theirs(ours: Transformer) -> nn.Transformer:
    config: ModelConfig = ours.config
    theirs = nn.Transformer(
        config.d_model,
        config.num_heads,
        config.num_encoder_layers,
        config.num_decoder_layers,
        config.ffn_dim,
        dropout=0.0,
        activation=config.activation,
        layer_norm_eps=config.layer_norm_eps,
        batch_first=True,
        norm_first=config.norm == "pre",
        dtype=torch.float64,
    )
    theirs.encoder.use_nested_tensor = False  # a shortcut over padding, in prototype state
    for our_stack, their_stack in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        for our_layer, their_layer in zip(our_stack.layers, their_stack.layers, strict=True):
            their_layer.load_state_dict(layer_state(our_layer))
        if our_stack.final_norm is None:
            their_stack.norm = None  # theirs normalises once more after post-norm, too
        else:
            their_stack.norm.load_state_dict(our_stack.final_norm.state_dict())
    return theirs.eval()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@torch.no_grad()
def test_same_weights_same_states(norm: str, activation: str) -> None:
    # An epsilon that has a visible effect and is not a default of either.
    ours = random_model(tiny_config(norm=norm, activation=activation, layer_norm_eps=1e-2)).double()
    theirs = build_theirs(ours)
    torch.manual_seed(1)
    source, target = torch.randn(3, 7, 32).double(), torch.randn(3, 5, 32).double()
    mask = torch.arange(7).expand(3, -1) < torch.tensor([[7], [1], [4]])

    memory = ours.encoder(source, mask[:, None, None, :])
    states = ours.decoder(target, memory, mask[:, None, None, :])

    their_memory = theirs.encoder(source, src_key_padding_mask=~mask)
    their_states = theirs.decoder(
        target,
        their_memory,
        tgt_mask=torch.ones(5, 5, dtype=torch.bool).triu(1),  # True forbids, theirs
        memory_key_padding_mask=~mask,
    )
    torch.testing.assert_close(memory[mask], their_memory[mask], rtol=0, atol=1e-12)
    torch.testing.assert_close(states, their_states, rtol=0, atol=1e-12)

"""The feed-forward network, the layers and the two stacks (Vaswani et al., 2017, 3.3 and 3.1).

Shapes are those of `model.network.transformer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.bundle.config import ModelConfig
from model.network.attention.kinds import ENCODER_ATTENTION
from model.network.attention.linformer import LowRankAttention
from model.network.attention.multi_head import MultiHeadAttention
from model.network.recurrence import RecurrentUnit


@dataclass
class AttentionWeights:
    """One tensor per layer, from the bottom up; rows of valid queries sum to one.

    With `only_cross`, the number of a decoder layer, nothing but that layer's cross-attention is
    recorded, and all other attention stays fused.
    """

    encoder: list[Tensor] = field(default_factory=list)  # [B, H, S, S]
    decoder_self: list[Tensor] = field(default_factory=list)  # [B, H, T, T]
    decoder_cross: list[Tensor] = field(default_factory=list)  # [B, H, T, S]
    only_cross: int | None = None


# --- 3.3 Position-wise feed-forward network -------------------------------------------------------

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """Equation 2: max(0, x W1 + b1) W2 + b2, at every position alike (or with GELU, SiLU)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.ffn_dim)
        self.outer = nn.Linear(config.ffn_dim, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = config.activation_dropout

    def forward(self, states: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D], with F = ffn_dim in between."""
        inner = self.activation(self.inner(states))  # [B, T, F]
        return cast(Tensor, self.outer(F.dropout(inner, self.dropout, self.training)))


# --- 3.1 Layers: each sublayer inside a residual connection with layer normalisation --------------


class _Layer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.dropout = nn.Dropout(config.dropout)

    def residual(
        self, states: Tensor, norm: nn.LayerNorm, sublayer: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """LayerNorm(x + Sublayer(x)) as in the paper, or x + Sublayer(LayerNorm(x)) (pre-norm)."""
        if self.pre_norm:
            return states + cast(Tensor, self.dropout(sublayer(norm(states))))
        return cast(Tensor, norm(states + self.dropout(sublayer(states))))


def layer_norm(config: ModelConfig) -> nn.LayerNorm:
    """Layer normalisation (Ba et al., 2016) over D."""
    return nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)


class EncoderLayer(_Layer):
    """Self-attention, then the feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.self_attention = ENCODER_ATTENTION[config.encoder_attention](config)
        self.self_attention_norm = layer_norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = layer_norm(config)

    def forward(
        self, states: Tensor, mask: Tensor | None, record: list[Tensor] | None = None
    ) -> Tensor:
        """[B, S, D] -> [B, S, D]; mask [B, 1, 1, S]."""

        def attend(x: Tensor) -> Tensor:
            attention = self.self_attention
            return cast(Tensor, attention(x, attention.keys_values(x, mask), mask, record=record))

        states = self.residual(states, self.self_attention_norm, attend)
        return self.residual(states, self.feed_forward_norm, self.feed_forward)


@dataclass
class LayerCache:
    """A decoder layer's state between steps, so that no position is computed twice."""

    self_key: Tensor  # [B, H, T, K]: grows by one position a step; stays empty in an SSRU decoder
    self_value: Tensor  # [B, H, T, K]
    cross_key: Tensor  # [B, H, S, K]: computed once a sentence (Linformer: [B, H, k, K])
    cross_value: Tensor  # [B, H, S, K]
    recurrent: Tensor | None = None  # [B, 1, D]: the state of an SSRU decoder's layer

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Appends the newest position [B, H, 1, K]; returns keys and values of all positions."""
        self.self_key = torch.cat((self.self_key, key), dim=2)
        self.self_value = torch.cat((self.self_value, value), dim=2)
        return self.self_key, self.self_value

    def select(self, rows: Tensor) -> LayerCache:
        """The cache of the given rows."""
        return LayerCache(
            self.self_key[rows],
            self.self_value[rows],
            self.cross_key[rows],
            self.cross_value[rows],
            None if self.recurrent is None else self.recurrent[rows],
        )


class DecoderLayer(_Layer):
    """Masked self-attention, attention over the encoder's output, the feed-forward network.

    With `decoder = "ssru"`, a recurrent unit stands in the place of self-attention.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.is_recurrent = config.decoder == "ssru"
        if self.is_recurrent:
            self.recurrence = RecurrentUnit(config)
            self.recurrence_norm = layer_norm(config)
        else:
            self.self_attention = MultiHeadAttention(config)
            self.self_attention_norm = layer_norm(config)
        low_rank = config.cross_attention == "linformer"
        self.cross_attention = (LowRankAttention if low_rank else MultiHeadAttention)(config)
        self.cross_attention_norm = layer_norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = layer_norm(config)

    def forward(
        self,
        states: Tensor,  # [B, T, D]
        memory: Tensor,  # [B, S, D]
        memory_mask: Tensor | None,  # [B, 1, 1, S]
        record: AttentionWeights | None = None,
    ) -> Tensor:
        """All target positions at once, each blind to those after it: [B, T, D]."""

        def look_back(x: Tensor) -> Tensor:
            if self.is_recurrent:
                return cast(Tensor, self.recurrence(x))
            keys_values = self.self_attention.keys_values(x)
            return cast(
                Tensor, self.self_attention(x, keys_values, causal=True, record=self_weights)
            )

        self_weights = cross_weights = None
        if record is not None:
            self_weights = None if record.only_cross is not None else record.decoder_self
            cross_weights = record.decoder_cross
        cross = self.cross_attention.keys_values(memory, memory_mask)
        return self._sublayers(states, look_back, cross, memory_mask, cross_weights)

    def step(self, states: Tensor, cache: LayerCache, memory_mask: Tensor | None) -> Tensor:
        """The newest target position alone, [B, 1, D] -> [B, 1, D]; the cache has the others."""

        def look_back(x: Tensor) -> Tensor:
            if cache.recurrent is not None:
                cache.recurrent = self.recurrence.step(x, cache.recurrent)
                return F.relu(cache.recurrent)
            keys_values = cache.extend(*self.self_attention.keys_values(x))
            return cast(Tensor, self.self_attention(x, keys_values))

        cross = (cache.cross_key, cache.cross_value)
        return self._sublayers(states, look_back, cross, memory_mask)

    def _sublayers(
        self,
        states: Tensor,
        look_back: Callable[[Tensor], Tensor],
        cross: tuple[Tensor, Tensor],
        memory_mask: Tensor | None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        def attend_to_memory(x: Tensor) -> Tensor:
            return cast(Tensor, self.cross_attention(x, cross, memory_mask, record=record))

        norm = self.recurrence_norm if self.is_recurrent else self.self_attention_norm
        states = self.residual(states, norm, look_back)
        states = self.residual(states, self.cross_attention_norm, attend_to_memory)
        return self.residual(states, self.feed_forward_norm, self.feed_forward)


# --- 3.1 The two stacks ---------------------------------------------------------------------------


class _Stack(nn.Module):
    """N layers, and with pre-norm one more normalisation, since nothing else bounds their sum."""

    def __init__(self, config: ModelConfig, layers: list[_Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.final_norm = layer_norm(config) if config.norm == "pre" else None

    def finish(self, states: Tensor) -> Tensor:
        return states if self.final_norm is None else cast(Tensor, self.final_norm(states))


class Encoder(_Stack):
    """The left half of the paper's figure 1."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, [EncoderLayer(config) for _ in range(config.num_encoder_layers)])

    def each_layer(self) -> Iterator[EncoderLayer]:
        """The layers from the bottom up, with their type."""
        for layer in self.layers:
            yield cast(EncoderLayer, layer)

    def forward(
        self, states: Tensor, mask: Tensor | None, record: list[Tensor] | None = None
    ) -> Tensor:
        """[B, S, D] -> [B, S, D]."""
        for layer in self.layers:
            states = layer(states, mask, record)
        return self.finish(states)


class Decoder(_Stack):
    """The right half of the paper's figure 1."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, [DecoderLayer(config) for _ in range(config.num_decoder_layers)])

    def each_layer(self) -> Iterator[DecoderLayer]:
        """The layers from the bottom up, with their type."""
        for layer in self.layers:
            yield cast(DecoderLayer, layer)

    def forward(
        self,
        states: Tensor,
        memory: Tensor,
        memory_mask: Tensor | None,
        record: AttentionWeights | None = None,
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        for index, layer in enumerate(self.layers):
            wanted = record is not None and record.only_cross in (None, index)
            states = layer(states, memory, memory_mask, record if wanted else None)
        return self.finish(states)

    def step(self, states: Tensor, caches: list[LayerCache], memory_mask: Tensor | None) -> Tensor:
        """[B, 1, D] -> [B, 1, D]; every layer's cache goes one position further."""
        for layer, cache in zip(self.each_layer(), caches, strict=True):
            states = layer.step(states, cache, memory_mask)
        return self.finish(states)

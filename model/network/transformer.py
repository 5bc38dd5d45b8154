"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017), to be read next to it.

In the order of the paper's section 3: attention, multi-head attention, the feed-forward network,
the layers with their residual connections, the two stacks, embeddings and positions, the model.

Shapes in trailing comments: B sentences, S source positions, T target positions, D = d_model,
H heads, K = head_dim, F = ffn_dim, V = vocab_size. Masks are boolean, True where one may look.
Padding stands on the right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.bundle.config import EncoderAttention, ModelConfig
from model.network.attention.linformer import project_positions
from model.network.attention.local import local_mask
from model.network.attention.lsh import draw_rotations, hash_buckets, keys_of, lsh_mask
from model.network.attention.strided import strided_mask
from model.network.recurrence import RecurrentUnit

# --- 3.2.1 Scaled dot-product attention -----------------------------------------------------------


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Equation 1: softmax(Q K^T / sqrt(d_k)) V, with the weights that it computed.

    Args:
        query: [..., T, K].
        key: [..., S, K].
        value: [..., S, W]; W may differ from K.
        mask: boolean, broadcastable to [..., T, S]; False forbids looking there. A query that may
            look nowhere gets weights and an output of zero, not NaN.
        dropout: probability of dropping a weight.

    Returns:
        The output [..., T, W] and the weights [..., T, S] (before dropout); each row of them sums
        to one.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # [..., T, S]
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        # The paper's -inf would make softmax divide zero by zero where a row is all padding.
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1).masked_fill(~mask, 0.0)
    return F.dropout(weights, dropout, training=dropout > 0.0) @ value, weights


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Which target position may look at which (section 3.2.3): [length, length], lower triangle."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


# --- 3.2.2 Multi-head attention -------------------------------------------------------------------


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each on its own projection of D to K = D / H dimensions."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.dropout = config.attention_dropout
        self.query = nn.Linear(config.d_model, config.d_model)
        self.key = nn.Linear(config.d_model, config.d_model)
        self.value = nn.Linear(config.d_model, config.d_model)
        self.output = nn.Linear(config.d_model, config.d_model)

    def keys_values(self, states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, S, K] of states [B, S, D], for queries to attend to.

        `mask` is that of `forward`; without it, every position counts.
        """
        return self._split(self.key(states)), self._split(self.value(states))

    def forward(
        self,
        states: Tensor,  # [B, T, D]: the queries
        keys_values: tuple[Tensor, Tensor],  # from keys_values()
        mask: Tensor | None = None,  # broadcastable to [B, H, T, S]
        causal: bool = False,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """Attends from `states`; appends the weights [B, H, T, S] to `record` if there is one."""
        query = self._split(self.query(states))  # [B, H, T, K]
        key, value = keys_values  # [B, H, S, K]
        mask = self.visible(query, mask)
        dropout = self.dropout if self.training else 0.0
        if record is None:  # the same function, fused: faster, but it keeps its weights to itself
            mixed = F.scaled_dot_product_attention(query, key, value, mask, dropout, causal)
        else:
            if causal:
                mask = causal_mask(states.size(1), states.device)
            mixed, weights = scaled_dot_product_attention(query, key, value, mask, dropout)
            record.append(weights)
        joined = mixed.transpose(1, 2).flatten(start_dim=2)  # [B, T, D]
        return cast(Tensor, self.output(joined))

    def visible(self, query: Tensor, mask: Tensor | None) -> Tensor | None:
        """Attention of queries [B, H, T, K] to the positions that are tokens: here, all of them."""
        return mask

    def _split(self, states: Tensor) -> Tensor:
        batch, length, width = states.shape
        heads = states.view(batch, length, self.num_heads, width // self.num_heads)
        return heads.transpose(1, 2)  # [B, H, S, K]


# --- Beyond the paper: attention for long sources, see `model.network.attention`
# --------------------------


class LocalAttention(MultiHeadAttention):
    """Self-attention within a distance."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.window = config.attention_window

    def visible(self, query: Tensor, mask: Tensor | None) -> Tensor | None:
        """Tokens within the distance: [B, 1, S, S]."""
        near = local_mask(query.size(2), self.window, query.device)
        return near if mask is None else mask & near


class StridedAttention(MultiHeadAttention):
    """Self-attention within a distance in half of the heads, at regular gaps in the others."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.stride = config.attention_window

    def visible(self, query: Tensor, mask: Tensor | None) -> Tensor | None:
        """Tokens within the distance, or at the gaps: [B, H, S, S]."""
        seen = strided_mask(query.size(2), self.stride, self.num_heads, query.device)
        return seen if mask is None else mask & seen


class HashedAttention(MultiHeadAttention):
    """Self-attention among similar queries, which are the keys, too."""

    rotations: Tensor  # [R, H, K, buckets / 2], stored with the weights

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        del self.key
        self.chunk = config.attention_window
        rounds, buckets = config.attention_rounds, config.attention_buckets
        rotations = draw_rotations(rounds, config.num_heads, config.head_dim, buckets)
        self.register_buffer("rotations", rotations)

    def keys_values(self, states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, S, K]."""
        return keys_of(self._split(self.query(states))), self._split(self.value(states))

    def visible(self, query: Tensor, mask: Tensor | None) -> Tensor | None:
        """Tokens of its bucket, in its chunk or beside it: [B, H, S, S]."""
        batch, _, length, _ = query.shape
        valid = query.new_ones(batch, length, dtype=torch.bool)
        if mask is not None:
            valid = valid & mask[:, 0, 0]
        return lsh_mask(hash_buckets(query, self.rotations), valid, self.chunk)


class LowRankAttention(MultiHeadAttention):
    """Attention to k weighted sums of the source's positions; self- or cross-attention."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        shape = (config.attention_rank, config.num_source_positions)
        self.key_projection = nn.Parameter(torch.empty(shape))  # E of the paper: [k, longest]
        self.value_projection = nn.Parameter(torch.empty(shape))  # F
        for projection in (self.key_projection, self.value_projection):
            nn.init.xavier_uniform_(projection)

    def keys_values(self, states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, k, K] of states [B, S, D], without those at padding."""
        key, value = super().keys_values(states)
        valid = None if mask is None else mask.transpose(-2, -1)  # [B, 1, S, 1]
        return (
            project_positions(key, self.key_projection, valid),
            project_positions(value, self.value_projection, valid),
        )

    def visible(self, query: Tensor, mask: Tensor | None) -> Tensor | None:
        """All of the k rows: what the mask forbids is not in them."""
        return None


ENCODER_ATTENTION: dict[EncoderAttention, type[MultiHeadAttention]] = {
    "full": MultiHeadAttention,
    "local": LocalAttention,
    "strided": StridedAttention,
    "lsh": HashedAttention,
    "linformer": LowRankAttention,
}


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


def _layer_norm(config: ModelConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)


class EncoderLayer(_Layer):
    """Self-attention, then the feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.self_attention = ENCODER_ATTENTION[config.encoder_attention](config)
        self.self_attention_norm = _layer_norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = _layer_norm(config)

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
        """Appends the newest position [B, H, 1, K]; gives keys and values of all positions."""
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
            self.recurrence_norm = _layer_norm(config)
        else:
            self.self_attention = MultiHeadAttention(config)
            self.self_attention_norm = _layer_norm(config)
        low_rank = config.cross_attention == "linformer"
        self.cross_attention = (LowRankAttention if low_rank else MultiHeadAttention)(config)
        self.cross_attention_norm = _layer_norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = _layer_norm(config)

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
        self.final_norm = _layer_norm(config) if config.norm == "pre" else None

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


# --- 3.4 and 3.5 Embeddings and positions ---------------------------------------------------------


def sinusoidal_positions(length: int, d_model: int) -> Tensor:
    """Section 3.5: sin(pos / 10000^(2i/D)) in column 2i, its cosine in column 2i+1.

    Returns:
        [length, d_model], float32. Computed in double precision, since in single precision the
        angles of far positions are off in the fourth digit.
    """
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)  # [length, 1]
    column = torch.arange(0, d_model, 2, dtype=torch.float64)  # [D / 2]: the paper's 2i
    angle = position / 10_000 ** (column / d_model)  # [length, D / 2]
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(start_dim=1).float()


def marian_positions(length: int, d_model: int) -> Tensor:
    """Marian's table [length, d_model]: sines, then cosines, of pos * 10000^(-i / (D/2 - 1)).

    See `SinusoidalPositionEmbeddings` in Marian's graph/node_initializers.cpp.
    """
    half = d_model // 2
    column = torch.arange(half, dtype=torch.float64)
    frequency = torch.exp(column * (-math.log(10_000) / max(half - 1, 1)))
    angle = torch.arange(length, dtype=torch.float64).unsqueeze(1) * frequency  # [length, D / 2]
    return torch.cat((angle.sin(), angle.cos()), dim=1).float()


# --- The model ------------------------------------------------------------------------------------


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


@dataclass
class DecoderCache:
    """The state of an incremental decode of B rows that have the same number of tokens."""

    layers: list[LayerCache]
    source_mask: Tensor  # [B, S]
    num_positions: int = 0  # tokens consumed so far

    def select(self, rows: Tensor) -> DecoderCache:
        """The cache of the given rows ([N], may repeat or drop some): how a beam search moves."""
        layers = [layer.select(rows) for layer in self.layers]
        return DecoderCache(layers, self.source_mask[rows], self.num_positions)


class Transformer(nn.Module):
    """The whole of figure 1: token ids in, logits over the vocabulary out.

    Source sequences end with `eos_id`; target sequences begin with `bos_id`, and the logits at
    position t are for token t + 1.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.target_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.output_projection = nn.Linear(
            config.d_model, config.vocab_size, bias=config.output_bias
        )
        self.source_positions: nn.Embedding | None = None
        self.target_positions: nn.Embedding | None = None
        lengths = config.num_source_positions, config.num_target_positions
        if config.positions == "learned":
            self.source_positions = nn.Embedding(lengths[0], config.d_model)
            self.target_positions = nn.Embedding(lengths[1], config.d_model)
        elif config.positions != "none":
            positions = marian_positions if config.positions == "marian" else sinusoidal_positions
            table = positions(max(lengths), config.d_model)
            self.register_buffer("sinusoid", table, persistent=False)  # [longest, D]
        self.source_mix: nn.Linear | None = None
        self.target_mix: nn.Linear | None = None
        if config.positions == "concatenated":
            self.source_mix = nn.Linear(2 * config.d_model, config.d_model)
            self.target_mix = nn.Linear(2 * config.d_model, config.d_model)
        self.source_embedding_norm = _layer_norm(config) if config.embedding_norm else None
        self.target_embedding_norm = _layer_norm(config) if config.embedding_norm else None
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.dropout = nn.Dropout(config.dropout)
        self.tie_weights()
        self._initialise()

    def forward(
        self, source_ids: Tensor, target_ids: Tensor, source_mask: Tensor | None = None
    ) -> Tensor:
        """Logits [B, T, V] for source ids [B, S] and target ids [B, T].

        `source_mask` [B, S] is True at tokens and False at padding; without it, every `pad_id` is
        taken for padding.

        Raises:
            ValueError: a sequence is longer than its side's limit (here and in every method below).
        """
        mask = self._source_mask(source_ids, source_mask)
        return self.decode(target_ids, self.encode(source_ids, mask), mask)

    def encode(self, source_ids: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """The memory [B, S, D] that the decoder looks at."""
        mask = self._source_mask(source_ids, source_mask)
        states = self._embed(self.source_embedding, self.source_positions, source_ids)
        return cast(Tensor, self.encoder(states, _as_attention_mask(mask)))

    def decode(
        self, target_ids: Tensor, memory: Tensor, source_mask: Tensor | None = None
    ) -> Tensor:
        """Logits [B, T, V] of all target positions at once."""
        return self.project(self.decode_hidden(target_ids, memory, source_mask))

    def decode_hidden(
        self,
        target_ids: Tensor,
        memory: Tensor,
        source_mask: Tensor | None = None,
        record: AttentionWeights | None = None,
    ) -> Tensor:
        """Decoder states [B, T, D] before `project`, which a loss need not pay for at padding."""
        states = self._embed(self.target_embedding, self.target_positions, target_ids)
        mask = None if source_mask is None else _as_attention_mask(source_mask)
        return cast(Tensor, self.decoder(states, memory, mask, record))

    def project(self, states: Tensor) -> Tensor:
        """Logits [..., V] of decoder states [..., D]."""
        return cast(Tensor, self.output_projection(states))

    def start_cache(self, memory: Tensor, source_mask: Tensor) -> DecoderCache:
        """An incremental decode's state before its first token: no positions, all cross-K/V."""
        heads, head_dim = self.config.num_heads, self.config.head_dim
        mask = _as_attention_mask(source_mask)
        empty = memory.new_empty(memory.size(0), heads, 0, head_dim)
        start = None
        if self.config.decoder == "ssru":
            start = memory.new_zeros(memory.size(0), 1, self.config.d_model)
        layers = [
            LayerCache(empty, empty, *layer.cross_attention.keys_values(memory, mask), start)
            for layer in self.decoder.each_layer()
        ]
        return DecoderCache(layers, source_mask)

    def step(self, token_ids: Tensor, cache: DecoderCache) -> Tensor:
        """Logits [B, V] for the token after `token_ids` [B]; `cache` goes one position further."""
        states = self._embed(
            self.target_embedding,
            self.target_positions,
            token_ids.unsqueeze(1),
            start=cache.num_positions,
        )  # [B, 1, D]
        mask = _as_attention_mask(cache.source_mask)
        states = self.decoder.step(states, cache.layers, mask)
        cache.num_positions += 1
        return self.project(states.squeeze(1))

    def attention_weights(
        self, source_ids: Tensor, target_ids: Tensor, source_mask: Tensor | None = None
    ) -> AttentionWeights:
        """Who looked where in a forward pass, for every layer and head.

        An SSRU decoder has no self-attention: `decoder_self` is empty.
        """
        mask = self._source_mask(source_ids, source_mask)
        record = AttentionWeights()
        states = self._embed(self.source_embedding, self.source_positions, source_ids)
        memory = self.encoder(states, _as_attention_mask(mask), record.encoder)
        self.decode_hidden(target_ids, memory, mask, record)
        return record

    def num_parameters(self) -> int:
        """Trainable numbers, a tied matrix counted once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def tie_weights(self) -> None:
        """Makes the matrices that `embedding_tying` names one and the same (section 3.4)."""
        if self.config.embedding_tying == "all":
            self.source_embedding.weight = self.target_embedding.weight
        if self.config.embedding_tying != "none":
            self.output_projection.weight = self.target_embedding.weight

    def _embed(
        self, embedding: nn.Embedding, positions: nn.Embedding | None, ids: Tensor, start: int = 0
    ) -> Tensor:
        is_source = embedding is self.source_embedding
        length, config = start + ids.size(1), self.config
        limit = config.num_source_positions if is_source else config.num_target_positions
        if length > limit:
            side = "source" if is_source else "target"
            given = "max_positions" if limit == config.max_positions else f"max_{side}_positions"
            raise ValueError(f"a sequence of {length} tokens exceeds {given} ({limit})")
        states = embedding(ids)  # [B, S, D]
        if self.config.scale_embeddings:
            states = states * math.sqrt(self.config.d_model)
        if not is_source and not config.embed_start:
            states = states.masked_fill((ids == config.bos_id).unsqueeze(-1), 0.0)
        if positions is not None:
            states = states + positions.weight[start:length]
        elif self.config.positions in ("sinusoidal", "marian"):
            states = states + cast(Tensor, self.sinusoid)[start:length]
        elif self.config.positions == "concatenated":
            mix = self.source_mix if is_source else self.target_mix
            states = self._concatenate(states, start, cast(nn.Linear, mix))
        norm = self.source_embedding_norm if is_source else self.target_embedding_norm
        if norm is not None:
            states = norm(states)
        return cast(Tensor, self.dropout(states))  # section 5.4: dropout on these sums, too

    def _concatenate(self, states: Tensor, start: int, mix: nn.Linear) -> Tensor:
        """W [x; p] + b, which is W_x x + W_p p + b: addition with a map of its own for each."""
        positions = cast(Tensor, self.sinusoid)[start : start + states.size(1)]  # [S, D]
        return cast(Tensor, mix(torch.cat((states, positions.expand_as(states)), dim=-1)))

    def _source_mask(self, source_ids: Tensor, source_mask: Tensor | None) -> Tensor:
        return source_ids != self.config.pad_id if source_mask is None else source_mask

    def _initialise(self) -> None:
        # Embeddings come last: a tied output projection has to get theirs. Their deviation makes
        # scaled embeddings as large as the positions that are added to them.
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, mean=0.0, std=self.config.d_model**-0.5)


def _as_attention_mask(source_mask: Tensor) -> Tensor:
    return source_mask[:, None, None, :]  # [B, 1, 1, S]: the same for every head and query

"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017), to be read next to it.

In the order of the paper's section 3: attention and multi-head attention (`attention.multi_head`),
the feed-forward network, the layers with their residual connections and the two stacks (`layers`),
positions (`positions`), embeddings and the model (here).

Shapes in trailing comments: B sentences, S source positions, T target positions, D = d_model,
H heads, K = head_dim, F = ffn_dim, V = vocab_size. Masks are boolean, True where one may look.
Padding stands on the right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from model.bundle.config import ModelConfig
from model.network.layers import AttentionWeights, Decoder, Encoder, LayerCache, layer_norm
from model.network.positions import marian_positions, sinusoidal_positions

# --- The model ------------------------------------------------------------------------------------


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
    """The Transformer of the paper's figure 1: token ids in, logits over the vocabulary out.

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
        self.source_embedding_norm = layer_norm(config) if config.embedding_norm else None
        self.target_embedding_norm = layer_norm(config) if config.embedding_norm else None
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
        """The attention weights of a forward pass, for every layer and head.

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
        """W [x; p] + b, which is W_x x + W_p p + b: a sum with one map for each."""
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

"""Configuration of a Transformer: sizes and options, stored with the weights.

Free of torch, so that the server can read it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Activation = Literal["relu", "gelu", "silu"]
NormPosition = Literal["post", "pre"]
PositionKind = Literal["sinusoidal", "marian", "learned", "concatenated", "none"]
EmbeddingTying = Literal["all", "target", "none"]
EncoderAttention = Literal["full", "local", "strided", "lsh", "linformer"]
CrossAttention = Literal["full", "linformer"]
DecoderKind = Literal["self_attention", "ssru"]

# Beyond these a size is a mistake, whose consequences would be hard to understand.
LARGEST_SIZES: Mapping[str, int] = {
    "vocab_size": 2**22,
    "d_model": 2**16,
    "num_encoder_layers": 2**10,
    "num_decoder_layers": 2**10,
    "num_heads": 2**10,
    "ffn_dim": 2**20,
    "max_positions": 2**20,
    "num_source_positions": 2**20,
    "num_target_positions": 2**20,
    "attention_window": 2**20,
    "attention_buckets": 2**16,
    "attention_rounds": 2**6,
    "attention_rank": 2**16,
}

_LATER_FIELDS = {
    "embedding_norm",
    "forbid_pad",
    "max_source_positions",
    "max_target_positions",
    "encoder_attention",
    "cross_attention",
    "attention_window",
    "attention_buckets",
    "attention_rounds",
    "attention_rank",
    "decoder",
    "embed_start",
}


class ConfigError(ValueError):
    """A field of a configuration has a value that cannot be used. The message names the field."""


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and options of an encoder-decoder Transformer (Vaswani et al., 2017, section 3).

    Attributes:
        vocab_size: entries in the vocabulary that source and target share.
        d_model: width of the residual stream.
        num_encoder_layers, num_decoder_layers: number of layers of this stack.
        num_heads: attention heads; must divide `d_model`.
        ffn_dim: inner width of the position-wise feed-forward network.
        activation: non-linearity of that network ("relu" in the paper).
        norm: "post" normalises after each residual sum, as in the paper; "pre" normalises each
            sublayer's input and once more after each stack (Xiong et al., 2020).
        positions: "sinusoidal" (section 3.5), "marian" (sines, then cosines, of slightly other
            frequencies), "learned", "concatenated" (sinusoidal ones beside the embedding, and one
            linear map of both), or "none" (for tests of equivariance).
        max_positions: longest sequence, in tokens, that either side can have.
        max_source_positions, max_target_positions: longest sequence of this side; by default
            `max_positions`.
        encoder_attention: source positions that a position sees (`model.network.attention`):
            "full" all; "local" those up to `attention_window` away; "strided" in half of the heads
            these, in the others every `attention_window`-th; "lsh" those with similar queries;
            "linformer" all, through `attention_rank` weighted sums.
        cross_attention: source positions that the decoder sees: "full" all, or "linformer"
            `attention_rank` weighted sums, which gives no word alignments.
        decoder: layer that reads the earlier target positions: "self_attention", or "ssru", a
            recurrent unit with one state vector a layer (Kim et al., 2019, section 3.1).
        embed_start: whether `bos_id`, from which the decoder starts, has an embedding; without one
            the decoder starts from zeros, as Marian's does.
        attention_window: reach of "local", reach and stride of "strided", chunk of "lsh".
        attention_buckets: values of a hash function of "lsh"; an even number.
        attention_rounds: number of hash functions of "lsh".
        attention_rank: rows that "linformer" keeps of a source.
        embedding_tying: "all" shares one matrix between source embedding, target embedding and
            output projection (section 3.4); "target" the last two; "none" shares nothing.
        scale_embeddings: multiply embeddings by sqrt(d_model) (section 3.4).
        embedding_norm: normalise the sums of embeddings and positions (BART, Lewis et al., 2020).
        output_bias: add a learned bias to the logits (Marian has one; the paper does not).
        forbid_pad: padding is never chosen although it has a probability, which the others lack
            (OPUS-MT's `bad_words_ids`); needs `output_bias`.
        layer_norm_eps: epsilon inside every layer normalisation.
        dropout: probability, used in training only (section 5.4).
        attention_dropout, activation_dropout: the same on attention weights and inside the FFN.
        pad_id, unk_id, bos_id, eos_id: special token ids. The decoder starts from `bos_id`.

    Raises:
        ConfigError: a value is out of range or fields contradict each other.
    """

    vocab_size: int
    d_model: int
    num_encoder_layers: int
    num_decoder_layers: int
    num_heads: int
    ffn_dim: int
    activation: Activation = "relu"
    norm: NormPosition = "post"
    positions: PositionKind = "sinusoidal"
    max_positions: int = 512
    max_source_positions: int | None = None
    max_target_positions: int | None = None
    encoder_attention: EncoderAttention = "full"
    cross_attention: CrossAttention = "full"
    decoder: DecoderKind = "self_attention"
    embed_start: bool = True
    attention_window: int = 128
    attention_buckets: int = 32
    attention_rounds: int = 2
    attention_rank: int = 128
    embedding_tying: EmbeddingTying = "all"
    scale_embeddings: bool = True
    embedding_norm: bool = False
    output_bias: bool = False
    forbid_pad: bool = False
    layer_norm_eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    pad_id: int = 0
    unk_id: int = 1
    bos_id: int = 2
    eos_id: int = 3

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.num_heads

    @property
    def forbidden_id(self) -> int | None:
        """The token that is never chosen, if there is one."""
        return self.pad_id if self.forbid_pad else None

    @property
    def num_source_positions(self) -> int:
        """Longest source, in tokens: the size of the encoder's position table."""
        return self.max_source_positions or self.max_positions

    @property
    def num_target_positions(self) -> int:
        """Longest target, in tokens: the size of the decoder's position table."""
        return self.max_target_positions or self.max_positions

    def num_memory_rows(self, num_source_tokens: int) -> int:
        """Keys and values that the decoder sees of a source, in each head of a layer."""
        if self.cross_attention == "linformer":
            return self.attention_rank
        return num_source_tokens

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "d_model",
            "num_encoder_layers",
            "num_decoder_layers",
            "num_heads",
            "ffn_dim",
            "max_positions",
            "max_source_positions",
            "max_target_positions",
            "attention_window",
            "attention_buckets",
            "attention_rounds",
            "attention_rank",
        ):
            value = getattr(self, name)
            if value is None and name in ("max_source_positions", "max_target_positions"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} must be a positive integer, not {value!r}")
        if self.d_model % self.num_heads:
            raise ConfigError(f"num_heads ({self.num_heads}) must divide d_model ({self.d_model})")
        if self.positions in ("sinusoidal", "marian", "concatenated") and self.d_model % 2:
            raise ConfigError(
                f"d_model must be even with {self.positions} positions, not {self.d_model}"
            )
        if self.encoder_attention == "strided" and self.num_heads < 2:
            raise ConfigError('num_heads must be at least 2 with encoder_attention = "strided"')
        if self.attention_buckets % 2:
            raise ConfigError(f"attention_buckets must be even, not {self.attention_buckets}")
        for name, kind in (
            ("activation", Activation),
            ("norm", NormPosition),
            ("positions", PositionKind),
            ("embedding_tying", EmbeddingTying),
            ("encoder_attention", EncoderAttention),
            ("cross_attention", CrossAttention),
            ("decoder", DecoderKind),
        ):
            if getattr(self, name) not in get_args(kind):
                choices = ", ".join(get_args(kind))
                raise ConfigError(f"{name} must be one of {choices}, not {getattr(self, name)!r}")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"{name} must be in [0, 1), not {getattr(self, name)!r}")
        if self.forbid_pad and not self.output_bias:
            raise ConfigError("forbid_pad needs output_bias")
        if not self.layer_norm_eps > 0.0:
            raise ConfigError(f"layer_norm_eps must be positive, not {self.layer_norm_eps!r}")
        ids = (self.pad_id, self.unk_id, self.bos_id, self.eos_id)
        if any(type(i) is not int or not 0 <= i < self.vocab_size for i in ids):
            raise ConfigError(f"special ids {ids} must lie in [0, vocab_size={self.vocab_size})")

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values; a newer field only if it differs from its default."""
        later = _LATER_FIELDS  # so that older programs read all other models
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in later or getattr(self, field.name) != field.default
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ModelConfig:
        """The configuration that `to_dict` gave.

        Raises:
            ConfigError: an unknown or missing field, or a bad value.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(fields) - known)
        if unknown:
            raise ConfigError(f"unknown field {unknown[0]!r} in the model configuration")
        try:
            return cls(**fields)
        except TypeError as exc:
            raise ConfigError(f"model configuration: {exc}") from exc


def default_alignment_layer(config: ModelConfig) -> int:
    """The decoder layer whose cross-attention is taken for the alignment, counted from 0.

    The penultimate one: of six layers it aligned best in Garg et al. (2019), "Jointly Learning to
    Align and Translate with Transformer Models", section 4.2. Of fewer than three the last, since
    the first has seen next to nothing of the target.
    """
    num_layers = config.num_decoder_layers
    return num_layers - 2 if num_layers > 2 else num_layers - 1


@dataclass(frozen=True)
class AlignmentHead:
    """The cross-attention head that was trained to align (`recipe.GuidedAlignment`).

    Attributes:
        layer: its decoder layer, from 0.
        head: its number in that layer, from 0.
    """

    layer: int
    head: int

    def check(self, config: ModelConfig) -> None:
        """Whether the network has such a head.

        Raises:
            ConfigError: it has not.
        """
        for name, value, count in (
            ("layer", self.layer, config.num_decoder_layers),
            ("head", self.head, config.num_heads),
        ):
            if type(value) is not int or not 0 <= value < count:
                raise ConfigError(
                    f"alignment.{name} must be between 0 and {count - 1}, not {value!r}"
                )


# "Attention Is All You Need", table 3, for `base` and `big`. `tiny` is the size of the published
# Multi30k baselines; `small` has a deep encoder and a shallow decoder (Kasai et al., 2021), since
# the decoder is what a request waits for. The students have the sizes of Firefox's (the repository
# `mozilla/translations`), in Marian's conventions.
STUDENT: dict[str, Any] = dict(
    decoder="ssru",
    embed_start=False,
    positions="marian",
    output_bias=True,
    layer_norm_eps=1e-6,
)
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": dict(d_model=128, num_encoder_layers=4, num_decoder_layers=4, num_heads=4, ffn_dim=256),
    "small": dict(
        d_model=256, num_encoder_layers=6, num_decoder_layers=2, num_heads=4, ffn_dim=1024
    ),
    "base": dict(
        d_model=512, num_encoder_layers=6, num_decoder_layers=6, num_heads=8, ffn_dim=2048
    ),
    "big": dict(
        d_model=1024, num_encoder_layers=6, num_decoder_layers=6, num_heads=16, ffn_dim=4096
    ),
    "student-tiny": dict(
        d_model=256,
        num_encoder_layers=6,
        num_decoder_layers=2,
        num_heads=8,
        ffn_dim=1536,
        **STUDENT,
    ),
    "student-base-memory": dict(
        d_model=384,
        num_encoder_layers=6,
        num_decoder_layers=4,
        num_heads=8,
        ffn_dim=1536,
        **STUDENT,
    ),
    "student-base": dict(
        d_model=512,
        num_encoder_layers=6,
        num_decoder_layers=2,
        num_heads=8,
        ffn_dim=2048,
        **STUDENT,
    ),
}


def preset(name: str, vocab_size: int, **overrides: Any) -> ModelConfig:
    """The preset `name` with a vocabulary of `vocab_size` and any field overridden.

    Raises:
        ConfigError: no such preset, or a bad override.
    """
    if name not in PRESETS:
        raise ConfigError(f"preset must be one of {', '.join(PRESETS)}, not {name!r}")
    return ModelConfig.from_dict({"vocab_size": vocab_size, **PRESETS[name], **overrides})

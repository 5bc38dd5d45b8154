"""The attention weights of a model, and a request's selection of them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from model.bundle.bundle import Bundle

Float32 = npt.NDArray[np.float32]

# Most tokens of a text and of its translation, EOS and language tokens included.
MAX_TOKENS = 1024

# Most weights that one call returns: 16 MB, at four bytes each.
MAX_WEIGHTS = 4_000_000

# Most weights that a call computes (`num_computed`): 8 heads of one layer, for the longest texts.
MAX_COMPUTED = 2 * 8 * MAX_TOKENS**2

# Memory for each weight, measured with 4 and 8 heads and 1,000 tokens. At a time, memory holds
# scores, masked scores, weights and temporary arrays of all heads of one attention.
_WORK_BYTES = 32
_SELECTED_BYTES = 5


class AttentionKind(enum.Enum):
    """A kind of attention (Vaswani et al., 2017, section 3.2.3)."""

    CROSS = "cross"
    ENCODER_SELF = "encoder_self"
    DECODER_SELF = "decoder_self"


@dataclass(frozen=True)
class AttentionShape:
    """The attentions of a model.

    Attributes:
        num_encoder_layers, num_decoder_layers: number of layers of each stack.
        num_heads: number of heads of each attention.
        bos_id: id of the token that the decoder reads first.
        encoder_kind: kind of the encoder's self-attention, as in `ModelConfig.encoder_attention`.
        encoder_rank: number of columns of the encoder's self-attention; 0 for one for each token.
        cross_rank: number of columns of the cross-attention; 0 for one for each token.
        is_recurrent: whether the decoder is an SSRU, without self-attention.
    """

    num_encoder_layers: int
    num_decoder_layers: int
    num_heads: int
    bos_id: int
    encoder_kind: str = "full"
    encoder_rank: int = 0
    cross_rank: int = 0
    is_recurrent: bool = False

    @classmethod
    def of(cls, bundle: Bundle) -> AttentionShape | None:
        """The attentions of a bundle; None if it has no attention graph."""
        if bundle.attention_path is None or bundle.scoring_path is None:
            return None
        config = bundle.config
        return cls(
            config.num_encoder_layers,
            config.num_decoder_layers,
            config.num_heads,
            config.bos_id,
            config.encoder_attention,
            config.attention_rank if config.encoder_attention == "linformer" else 0,
            config.attention_rank if config.cross_attention == "linformer" else 0,
            config.decoder == "ssru",
        )

    def num_layers(self, kind: AttentionKind) -> int:
        """Number of layers with this kind of attention."""
        if self.is_recurrent and kind is AttentionKind.DECODER_SELF:
            return 0
        is_encoder = kind is AttentionKind.ENCODER_SELF
        return self.num_encoder_layers if is_encoder else self.num_decoder_layers

    def num_weights(self, kind: AttentionKind, num_source: int, num_target: int) -> int:
        """Number of weights of one head for these lengths in tokens: rows times columns."""
        if kind is AttentionKind.ENCODER_SELF:
            return num_source * (self.encoder_rank or num_source)
        if kind is AttentionKind.CROSS:
            return num_target * (self.cross_rank or num_source)
        return 0 if self.is_recurrent else num_target * num_target

    def num_work(self, num_source: int, num_target: int) -> int:
        """Number of weights of the largest attention, which is computed for all heads."""
        return self.num_heads * max(
            self.num_weights(kind, num_source, num_target) for kind in AttentionKind
        )

    def peak_bytes(self, max_source: int, max_target: int) -> int:
        """Most memory that a call takes, for the longest text and translation, in bytes."""
        lengths = min(max_source, MAX_TOKENS), min(max_target, MAX_TOKENS)
        work = min(self.num_work(*lengths), MAX_COMPUTED)
        selected = self.num_heads * sum(
            self.num_layers(kind) * self.num_weights(kind, *lengths) for kind in AttentionKind
        )
        return _WORK_BYTES * work + _SELECTED_BYTES * min(selected, MAX_COMPUTED - work)


@dataclass(frozen=True)
class AttentionSelection:
    """The attention weights to compute.

    Attributes:
        kinds: kinds of attention, each with its layers, in the order of the result.
        heads: numbers of the heads, in the order of the result.
        average_layers: whether to return the mean over a kind's layers.
        average_heads: whether to return the mean over the heads.
    """

    kinds: Sequence[tuple[AttentionKind, tuple[int, ...]]]
    heads: tuple[int, ...]
    average_layers: bool = False
    average_heads: bool = False

    def num_weights(self, shape: AttentionShape, num_source: int, num_target: int) -> int:
        """Number of weights of the result for these lengths in tokens."""
        num_heads = 1 if self.average_heads else len(self.heads)
        return num_heads * sum(
            (1 if self.average_layers else len(layers))
            * shape.num_weights(kind, num_source, num_target)
            for kind, layers in self.kinds
        )

    def num_computed(self, shape: AttentionShape, num_source: int, num_target: int) -> int:
        """Most weights in memory at a time: all before averaging, and those of one attention."""
        before = replace(self, average_layers=False, average_heads=False)
        selected = before.num_weights(shape, num_source, num_target)
        return selected + shape.num_work(num_source, num_target)

    def labels(self) -> list[AttentionLabel]:
        """Labels of the matrices of a result, in order."""
        found = []
        for kind, layers in self.kinds:
            for layer in [None] if self.average_layers else layers:
                for head in [None] if self.average_heads else self.heads:
                    found.append(AttentionLabel(kind, layer, head))
        return found

    def reduced(self, arrays: Sequence[Float32]) -> list[Float32]:
        """The matrices of a result, in the order of `labels`.

        Args:
            arrays: [heads, rows, columns] for each kind and layer.
        """
        left = iter(arrays)
        matrices: list[Float32] = []
        for _, layers in self.kinds:
            stack = np.stack([next(left) for _ in layers])  # [layers, heads, rows, columns]
            if self.average_layers:
                stack = stack.mean(axis=0, keepdims=True)
            if self.average_heads:
                stack = stack.mean(axis=1, keepdims=True)
            matrices += list(stack.reshape(-1, *stack.shape[2:]))
        return matrices


@dataclass(frozen=True)
class AttentionLabel:
    """The kind, layer and head of a matrix; None for the mean over the selected ones."""

    kind: AttentionKind
    layer: int | None = None
    head: int | None = None

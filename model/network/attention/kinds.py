"""The kinds of self-attention that an encoder may have, by their names in a configuration."""

from __future__ import annotations

from model.bundle.config import EncoderAttention
from model.network.attention.linformer import LowRankAttention
from model.network.attention.local import LocalAttention
from model.network.attention.lsh import HashedAttention
from model.network.attention.multi_head import MultiHeadAttention
from model.network.attention.strided import StridedAttention

ENCODER_ATTENTION: dict[EncoderAttention, type[MultiHeadAttention]] = {
    "full": MultiHeadAttention,
    "local": LocalAttention,
    "strided": StridedAttention,
    "lsh": HashedAttention,
    "linformer": LowRankAttention,
}

"""Values of a config.json's fields that it may leave out, as `transformers` fills them in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ALL: Mapping[str, Any] = {
    "d_model": 1024,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "max_position_embeddings": 1024,
    "activation_function": "gelu",
}
_BART = {**_ALL, "vocab_size": 50265, "pad_token_id": 1, "eos_token_id": 2}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "marian": {
        **_ALL,
        "vocab_size": 58101,
        "pad_token_id": 58100,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "decoder_start_token_id": 58100,
    },
    "m2m_100": {
        **_ALL,
        "vocab_size": 128112,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "activation_function": "relu",
        "scale_embedding": True,
        "decoder_start_token_id": 2,
    },
    "mbart": {**_BART, "forced_eos_token_id": 2},
    "bart": {**_BART, "forced_eos_token_id": 2, "decoder_start_token_id": 2},
}


def with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json with the fields that it leaves out, by its `model_type`."""
    return {**_DEFAULTS.get(str(config.get("model_type")), {}), **config}

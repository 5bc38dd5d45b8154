"""Counts the multiplications of a network for a pair: those of its matrix products."""

from __future__ import annotations

from model.bundle.config import ModelConfig


def positions_seen(config: ModelConfig, length: int) -> float:
    """Mean number of keys that a query of the encoder is compared with, without masked ones.

    For "lsh", three chunks are counted for each round, as sorted chunks need.
    """
    near = min(length, 2 * config.attention_window + 1)
    if config.encoder_attention == "local":
        return near
    if config.encoder_attention == "strided":
        return (near + max(1.0, length / config.attention_window)) / 2
    if config.encoder_attention == "lsh":
        return config.attention_rounds * min(length, 3 * config.attention_window)
    if config.encoder_attention == "linformer":
        return min(length, config.attention_rank)
    return length


def training_multiplications(config: ModelConfig, source: int, target: int) -> int:
    """Multiplications of a forward pass over one pair. The backward pass takes twice as many.

    Args:
        source: tokens of the source.
        target: tokens of the target.
    """
    width = config.d_model
    feed_forward = 2 * width * config.ffn_dim
    projections = (3 if config.encoder_attention == "lsh" else 4) * width**2
    attention = 2 * positions_seen(config, source) * width
    if config.encoder_attention == "linformer":
        attention += 2 * config.attention_rank * width  # E K and F V
    encoder = source * (projections + attention + feed_forward)
    memory = config.num_memory_rows(source)
    keys_values = 2 * source * width**2
    if config.cross_attention == "linformer":
        keys_values += 2 * source * config.attention_rank * width
    each = 6 * width**2 + 2 * (target + memory) * width + feed_forward
    if config.decoder == "ssru":
        each -= 2 * width**2 + 2 * target * width
    decoder = target * each + keys_values
    output = target * width * config.vocab_size
    total = config.num_encoder_layers * encoder + config.num_decoder_layers * decoder + output
    return round(total)

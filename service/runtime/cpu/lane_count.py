"""The number of lanes of a model on a CPU, computed without opening it or ONNX Runtime."""

from __future__ import annotations

from model.bundle.config import ModelConfig

# Fewest rows of a lane: a beam has to fit in, and with fewer rows, reading the weights costs too
# much for each row.
_MIN_LANE_ROWS = 32
# Most weights of a small decoder. Measured: two layers of width 256 with 8,000 pieces (4 million),
# version 4 of the included model (10 million), and Transformer base (35 million), which one lane
# slows to 0.83.
_SMALL_DECODER = 12e6
# Most weights of a decoder that one thread steps faster than two, which wait for each other. See
# `bench/NOTES.md`: a student of two layers of width 256 with 8,000 pieces (4 million).
_TINY_DECODER = 5e6


def best_lanes(config: ModelConfig, max_rows: int, threads: int) -> int:
    """The number of lanes for these numbers of rows and threads; 0 for a runner without lanes."""
    num_weights = num_layer_weights(config) + config.d_model * config.vocab_size
    is_small = num_weights <= _SMALL_DECODER
    num_lanes = 1 if threads == 2 and is_small else threads
    return 0 if threads == 1 or max_rows < num_lanes * _MIN_LANE_ROWS else num_lanes


def steps_on_one_thread(config: ModelConfig, *, has_shortlist: bool) -> bool:
    """Whether a lane steps on one thread even if it steps alone.

    Args:
        config: the model's configuration.
        has_shortlist: whether few tokens of the vocabulary are multiplied.
    """
    num_outputs = 0 if has_shortlist else config.vocab_size
    return num_layer_weights(config) + config.d_model * num_outputs <= _TINY_DECODER


def num_layer_weights(config: ModelConfig) -> int:
    """Number of weights of the matrices in the decoder's layers, for each target token."""
    width = config.d_model
    look_back = 2 if config.decoder == "ssru" else 4
    layer = (look_back + 2) * width**2 + 2 * width * config.ffn_dim
    return config.num_decoder_layers * layer

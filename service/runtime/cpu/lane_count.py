"""How many lanes a model gets on a CPU; known before it is opened, and without ONNX Runtime."""

from __future__ import annotations

from model.bundle.config import ModelConfig

# A beam has to fit into a lane, and with fewer rows reading the weights costs too much a row.
_MIN_LANE_ROWS = 32
# Weights of a small decoder. Measured were 4 million (two layers of width 256, 8,000 pieces), and
# Transformer base with 35 million, which has 0.83 of its throughput with one lane of two threads.
_SMALL_DECODER = 6e6


def best_lanes(config: ModelConfig, max_rows: int, threads: int) -> int:
    """How many lanes `cpu_runner` makes for so many rows and threads; 0 for none."""
    is_small = _num_decoder_weights(config) <= _SMALL_DECODER
    num_lanes = 1 if threads == 2 and is_small else threads
    return 0 if threads == 1 or max_rows < num_lanes * _MIN_LANE_ROWS else num_lanes


def _num_decoder_weights(config: ModelConfig) -> int:
    """Weights of the matrices that each target token is multiplied with."""
    width = config.d_model
    look_back = 2 if config.decoder == "ssru" else 4
    layer = (look_back + 2) * width**2 + 2 * width * config.ffn_dim
    return config.num_decoder_layers * layer + width * config.vocab_size

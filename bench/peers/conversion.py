"""Conversion of our weights to CTranslate2's format, so that both run the same model.

Through `ctranslate2.specs.TransformerSpec`, which takes arrays; nothing is retrained or rounded.
CTranslate2 quantises when it loads (`compute_type`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from model.bundle.config import ModelConfig

Array = npt.NDArray[np.float32]
Arrays = Mapping[str, npt.NDArray[Any]]

_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}


class ConversionError(ValueError):
    """CTranslate2 can't run this model; the message says why."""


def vocabulary(config: ModelConfig) -> list[str]:
    """Names of the tokens in CTranslate2: their ids, which it receives and returns.

    Names of its own would have to be unique, and looking pieces up costs the same.
    """
    return [str(token_id) for token_id in range(config.vocab_size)]


def convert(config: ModelConfig, arrays: Arrays, directory: Path) -> None:
    """Write a float32 model for CTranslate2.

    Args:
        arrays: the state dict of `model.network.transformer.Transformer`.
        directory: made, and filled; must not hold a model yet.

    Raises:
        ConversionError: CTranslate2 has no such model.
    """
    from ctranslate2.specs import TransformerSpec, common_spec

    if config.positions == "none":
        raise ConversionError("CTranslate2's Transformer has positions; this model has none")
    for field, supported in (
        ("positions", ("sinusoidal", "learned")),
        ("encoder_attention", ("full",)),
        ("cross_attention", ("full",)),
        ("decoder", ("self_attention",)),
        ("embed_start", (True,)),
    ):
        value = getattr(config, field)
        if value not in supported:
            raise ConversionError(f"CTranslate2's Transformer has no {field} = {value!r}")
    spec = TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation=common_spec.Activation[_ACTIVATIONS[config.activation]],
    )
    weights = _PeerWeights(arrays)
    _fill_encoder(spec.encoder, config, weights)
    _fill_decoder(spec.decoder, config, weights)
    _configure(spec, config)
    spec.validate()
    spec.optimize()
    directory.mkdir(parents=True, exist_ok=False)
    spec.save(str(directory))


class _PeerWeights:
    """Reads the state dict by the names of the parts."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> Array:
        return np.ascontiguousarray(self._arrays[name], np.float32)

    def linear(self, spec: Any, *names: str) -> None:
        """One linear layer of CTranslate2's from one or several of ours, side by side."""
        spec.weight = np.concatenate([self[f"{name}.weight"] for name in names])
        spec.bias = np.concatenate([self[f"{name}.bias"] for name in names])

    def norm(self, spec: Any, name: str) -> None:
        spec.gamma = self[f"{name}.weight"]
        spec.beta = self[f"{name}.bias"]


def _fill_encoder(spec: Any, config: ModelConfig, weights: _PeerWeights) -> None:
    spec.embeddings[0].weight = weights["source_embedding.weight"]
    spec.scale_embeddings = config.scale_embeddings
    spec.position_encodings.encodings = _positions(config, weights, "source_positions")
    for index, layer in enumerate(spec.layer):
        _fill_self_attention(layer, weights, f"encoder.layers.{index}")
        _fill_feed_forward(layer, weights, f"encoder.layers.{index}")
    if config.norm == "pre":
        weights.norm(spec.layer_norm, "encoder.final_norm")


def _fill_decoder(spec: Any, config: ModelConfig, weights: _PeerWeights) -> None:
    spec.embeddings.weight = weights["target_embedding.weight"]
    spec.scale_embeddings = config.scale_embeddings
    spec.position_encodings.encodings = _positions(config, weights, "target_positions")
    for index, layer in enumerate(spec.layer):
        name = f"decoder.layers.{index}"
        _fill_self_attention(layer, weights, name)
        cross = f"{name}.cross_attention"
        query, key_value, output = layer.attention.linear
        weights.linear(query, f"{cross}.query")
        weights.linear(key_value, f"{cross}.key", f"{cross}.value")
        weights.linear(output, f"{cross}.output")
        weights.norm(layer.attention.layer_norm, f"{cross}_norm")
        _fill_feed_forward(layer, weights, name)
    spec.projection.weight = weights["output_projection.weight"]
    if config.output_bias:
        bias = weights["output_projection.bias"]
        if config.forbidden_id is not None:
            bias = bias.copy()
            bias[config.forbidden_id] = np.finfo(np.float16).min
        spec.projection.bias = bias
    if config.norm == "pre":
        weights.norm(spec.layer_norm, "decoder.final_norm")


def _fill_self_attention(layer: Any, weights: _PeerWeights, name: str) -> None:
    attention = f"{name}.self_attention"
    projections, output = layer.self_attention.linear
    weights.linear(projections, *(f"{attention}.{part}" for part in ("query", "key", "value")))
    weights.linear(output, f"{attention}.output")
    weights.norm(layer.self_attention.layer_norm, f"{attention}_norm")


def _fill_feed_forward(layer: Any, weights: _PeerWeights, name: str) -> None:
    weights.linear(layer.ffn.linear_0, f"{name}.feed_forward.inner")
    weights.linear(layer.ffn.linear_1, f"{name}.feed_forward.outer")
    weights.norm(layer.ffn.layer_norm, f"{name}.feed_forward_norm")


def _positions(config: ModelConfig, weights: _PeerWeights, name: str) -> Array:
    """Position embeddings [longest, d_model] of one side, learned or interleaved sinusoids.

    CTranslate2 can compute a sinusoid itself, but it puts all sines before all cosines.
    """
    if config.positions == "learned":
        return weights[f"{name}.weight"]
    is_source = name == "source_positions"
    length = config.num_source_positions if is_source else config.num_target_positions
    position = np.arange(length, dtype=np.float64)[:, None]
    column = np.arange(0, config.d_model, 2, dtype=np.float64)
    angle = position / 10_000 ** (column / config.d_model)
    both = np.stack((np.sin(angle), np.cos(angle)), axis=-1)
    return both.reshape(length, config.d_model).astype(np.float32)


def _configure(spec: Any, config: ModelConfig) -> None:
    names: Sequence[str] = vocabulary(config)
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.unk_token = names[config.unk_id]
    spec.config.bos_token = names[config.bos_id]
    spec.config.eos_token = names[config.eos_id]
    spec.config.decoder_start_token = names[config.bos_id]
    spec.config.add_source_bos = False
    spec.config.add_source_eos = False  # our sources end with it
    spec.config.layer_norm_epsilon = config.layer_norm_eps

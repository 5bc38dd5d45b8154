"""A checkpoint's arrays by the names of `model.network.transformer`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from export.arithmetic import FixedSteps
from export.cache_steps import CacheSteps
from export.errors import ExportError
from export.shared_weights import SharedWeights
from model.bundle.config import ModelConfig
from model.network.positions import marian_positions

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]


class Weights:
    """Named float32 arrays of one model, with tied names resolved and shapes checked.

    Linear weights are [out, in], as PyTorch keeps them.

    Args:
        arrays: a state dict.
        shared: file for the large constants of graphs; None to keep them in the graphs.
        steps: prescribed steps, by the names of linear maps and embeddings.
        cache_steps: steps of 8-bit keys and values, by attention blocks of the decoder; without
            any, caches have the precision of activations.

    Raises:
        ExportError: from every method, for an array that is missing, misshapen or not finite.
    """

    def __init__(
        self,
        arrays: Mapping[str, Array],
        config: ModelConfig,
        shared: SharedWeights | None = None,
        steps: Mapping[str, FixedSteps] | None = None,
        cache_steps: CacheSteps | None = None,
    ) -> None:
        self.shared = shared
        self.cache_steps = cache_steps or {}
        self._steps = steps or {}
        self._arrays = arrays
        self._config = config

    def get(self, name: str, *shape: int) -> Float32:
        """The array `name`, which must have this shape."""
        if name not in self._arrays:
            raise ExportError(f"the checkpoint has no weight {name!r}")
        array = np.asarray(self._arrays[name], dtype=np.float32)
        if array.shape != shape:
            raise ExportError(
                f"the weight {name!r} has shape {list(array.shape)}, "
                f"but the configuration asks for {list(shape)}"
            )
        if not np.isfinite(array).all():
            raise ExportError(f"the weight {name!r} holds infinite or undefined numbers")
        return array

    def steps(self, *names: str) -> FixedSteps | None:
        """The prescribed steps of several maps with equal inputs as one; None if a map has none."""
        found = [self._steps[name] for name in names if name in self._steps]
        if len(found) < len(names):
            return None
        weights = tuple(step for one in found for step in one.weights)
        states = {one.states for one in found}
        return FixedSteps(weights, states.pop() if len(states) == 1 else None)

    def linear(self, name: str, num_out: int, num_in: int) -> tuple[Float32, Float32]:
        """Weight [out, in] and bias [out] of one linear map."""
        return self.get(f"{name}.weight", num_out, num_in), self.get(f"{name}.bias", num_out)

    def fused(self, block: str, *names: str) -> tuple[Float32, Float32]:
        """Several D -> D maps of one attention block as one: [n * D, D] and [n * D]."""
        width = self._config.d_model
        pairs = [self.linear(f"{block}.{name}", width, width) for name in names]
        return (
            np.concatenate([weight for weight, _ in pairs]),
            np.concatenate([bias for _, bias in pairs]),
        )

    def gates(self, block: str) -> tuple[Float32, Float32]:
        """Forget gate and candidate of a recurrent unit as one map: [2 * D, D] and [2 * D]."""
        width = self._config.d_model
        forget, bias = self.linear(f"{block}.forget", width, width)
        candidate = self.get(f"{block}.candidate.weight", width, width)
        return np.concatenate((forget, candidate)), np.concatenate((bias, np.zeros_like(bias)))

    def norm(self, name: str) -> tuple[Float32, Float32]:
        """Gain and bias [D] of one layer normalisation."""
        width = self._config.d_model
        return self.get(f"{name}.weight", width), self.get(f"{name}.bias", width)

    def embedding(self, side: str) -> Float32:
        """The token embedding [V, D] of the "source" or "target" side.

        Concatenated positions need one linear map after them: W [x; p] + b = W_x x + (W_p p + b).
        Terms that depend on the token are folded into this table, the rest into `positions`.
        """
        owner = "target" if self._config.embedding_tying == "all" else side
        table = self._vocabulary_matrix(f"{owner}_embedding.weight", f"{side}_embedding.weight")
        if self._config.positions != "concatenated":
            return table
        weight, _, _ = self._mix(side)
        return table @ weight.T

    def output_projection(self) -> Float32:
        """The matrix [V, D] that turns decoder states into logits."""
        if self._config.embedding_tying == "none":
            return self._vocabulary_matrix("output_projection.weight")
        return self._vocabulary_matrix("target_embedding.weight", "output_projection.weight")

    def output_bias(self) -> Float32 | None:
        """The bias [V] of the logits, if the model has one."""
        if not self._config.output_bias:
            return None
        return self.get("output_projection.bias", self._config.vocab_size)

    def positions(self, side: str) -> Float32 | None:
        """The position table [longest, D] of a side, or None for a model without one."""
        config = self._config
        if config.positions == "none":
            return None
        is_source = side == "source"
        length = config.num_source_positions if is_source else config.num_target_positions
        if config.positions == "learned":
            return self.get(f"{side}_positions.weight", length, config.d_model)
        if config.positions == "marian":
            return np.asarray(marian_positions(length, config.d_model).numpy())
        table = sinusoidal_positions(length, config.d_model)
        if config.positions == "sinusoidal":
            return table
        _, weight, bias = self._mix(side)
        return table @ weight.T + bias

    def _mix(self, side: str) -> tuple[Float32, Float32, Float32]:
        """The mixing weights of concatenated positions: W_x and W_p [D, D], and b [D]."""
        width = self._config.d_model
        weight, bias = self.linear(f"{side}_mix", width, 2 * width)
        return weight[:, :width], weight[:, width:], bias

    def _vocabulary_matrix(self, *names: str) -> Float32:
        # A tied matrix is stored once, under one of its names.
        tied = ("target_embedding.weight", "source_embedding.weight", "output_projection.weight")
        everywhere = self._config.embedding_tying == "all"
        candidates = [*names, *(tied if everywhere else ())]
        name = next((name for name in candidates if name in self._arrays), names[0])
        return self.get(name, self._config.vocab_size, self._config.d_model)


def sinusoidal_positions(length: int, width: int) -> Float32:
    """The table [length, width] of section 3.5: sines at even columns, cosines at odd ones."""
    angles = np.arange(length)[:, None] * np.exp(
        -np.log(10_000.0) * np.arange(0, width, 2)[None, :] / width
    )
    table = np.empty((length, width), np.float32)
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles)
    return table

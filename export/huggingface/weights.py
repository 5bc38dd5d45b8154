"""Converts the weights of a Hugging Face directory to ours.

Positions are written out as a table, which is exact whatever formula they come from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NoReturn

import torch
from torch import Tensor

from export.errors import ExportError
from export.huggingface.architectures import Family, family_of
from export.huggingface.directory import CONFIG_FILE, ModelDirectory
from export.huggingface.generation import excludes_pad
from export.layers import NEVER
from model.bundle.config import ModelConfig
from model.network.transformer import Transformer

RENAMED = {
    "self_attn.q_proj": "self_attention.query",
    "self_attn.k_proj": "self_attention.key",
    "self_attn.v_proj": "self_attention.value",
    "self_attn.out_proj": "self_attention.output",
    "encoder_attn.q_proj": "cross_attention.query",
    "encoder_attn.k_proj": "cross_attention.key",
    "encoder_attn.v_proj": "cross_attention.value",
    "encoder_attn.out_proj": "cross_attention.output",
    "self_attn_layer_norm": "self_attention_norm",
    "encoder_attn_layer_norm": "cross_attention_norm",
    "final_layer_norm": "feed_forward_norm",
    "fc1": "feed_forward.inner",
    "fc2": "feed_forward.outer",
}
# A weight of a layer, by their name without "model." or by ours.
LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(.+)\.(weight|bias)")
THEIRS = {ours: name for name, ours in RENAMED.items()}
_SIDES = {"encoder": "source", "decoder": "target"}
_MATRICES = ("source_embedding", "target_embedding", "output_projection")
# Versions of formats, which fairseq wrote; `transformers` leaves them out, too.
_NO_WEIGHTS = {"encoder.version", "decoder.version"}
# Of sinusoids: OPUS-MT's are 1 MiB, those of M2M-100 4 MiB.
_LARGEST_TABLE_BYTES = 2**26


def read_model(directory: ModelDirectory, config: ModelConfig) -> Transformer:
    """The model's weights in our network, in evaluation mode.

    Raises:
        ExportError: a weight is missing, unknown or of another shape than the configuration says;
            names it.
    """
    with torch.device("meta"):
        model = Transformer(config)
    states = _Weights(directory, config).states(model.state_dict())
    model.load_state_dict(states, assign=True)
    model.tie_weights()
    return model.eval()


class _Weights:
    """Collects a directory's tensors under our names."""

    def __init__(self, directory: ModelDirectory, config: ModelConfig) -> None:
        self._directory = directory
        self._config = config
        self._family = family_of(directory)
        self._matrices: dict[str, Tensor] = {}  # embeddings and output projection, by their names
        self._states: dict[str, Tensor] = {}
        self._names: dict[str, str] = {}  # in the files, by ours
        self._bias = torch.zeros(0)

    def states(self, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All weights by our names, of these shapes.

        The shapes in the files are checked before anything is made of a size that the configuration
        says.
        """
        for name, tensor in self._directory.tensors():
            # The sum needs no memory, and hides neither: inf - inf is NaN.
            if tensor.is_floating_point() and not tensor.sum().isfinite():
                self._refuse_if_not_finite(name, tensor)
            before = len(self._states)
            if name.removeprefix("model.") not in _NO_WEIGHTS:
                self._add(name.removeprefix("model."), tensor)
            if len(self._states) > before:
                self._names[next(reversed(self._states))] = name
        matrices = self._checked_matrices()
        self._check(expected)
        self._add_embeddings(matrices)
        self._add_positions()
        return self._states

    def _check(self, expected: Mapping[str, Tensor]) -> None:
        made = {f"{name}.{kind}" for name in _MATRICES for kind in ("weight", "bias")}
        made |= {f"{side}_positions.weight" for side in _SIDES.values()}
        for problem, names in (
            ("missing", expected.keys() - self._states.keys() - made),
            ("unknown", self._states.keys() - expected.keys()),
        ):
            if names:
                self._refuse(min(map(self.name_of, names)), f"is {problem}")
        for ours, tensor in self._states.items():
            self._check_weight(self.name_of(ours), tensor, list(expected[ours].shape))

    def _check_weight(self, name: str, tensor: Tensor, shape: list[int]) -> None:
        found = list(tensor.shape)
        if found != shape:
            self._refuse(name, f"has shape {found}, {CONFIG_FILE} says {shape}")
        if not tensor.is_floating_point():
            self._refuse(name, f"has numbers of type {tensor.dtype}, not floats")

    def _refuse(self, name: str, why: str) -> NoReturn:
        raise ExportError(f"{self._directory.path}: the weight {name!r} {why}")

    def name_of(self, ours: str) -> str:
        """The name in the files of one of our weights, whether it is there or not."""
        if ours in self._names:
            return self._names[ours]
        stack, _, rest = ours.partition(".")
        if layer := LAYER.fullmatch(ours):
            stack, number, block, kind = layer.groups()
            return f"model.{stack}.layers.{number}.{THEIRS.get(block, block)}.{kind}"
        if rest.startswith("final_norm."):
            return f"model.{stack}.layer_norm.{rest.removeprefix('final_norm.')}"
        for stack, side in _SIDES.items():
            for own, name in (
                ("embedding_norm", "layernorm_embedding"),
                ("positions", "embed_positions"),
            ):
                if ours.startswith(f"{side}_{own}."):
                    return f"model.{stack}.{name}.{rest}"
        return ours

    def _add(self, name: str, tensor: Tensor) -> None:
        stack, _, rest = name.partition(".")
        side = _SIDES.get(stack, "")
        if layer := LAYER.fullmatch(name):
            stack, number, block, kind = layer.groups()
            ours = RENAMED.get(block, block)
            self._states[f"{stack}.layers.{number}.{ours}.{kind}"] = tensor
        elif side and rest.startswith("layer_norm."):
            self._states[f"{stack}.final_norm.{rest.removeprefix('layer_norm.')}"] = tensor
        elif side and rest.startswith("layernorm_embedding."):
            kind = rest.removeprefix("layernorm_embedding.")
            self._states[f"{side}_embedding_norm.{kind}"] = tensor
        elif side and rest in ("embed_positions.weight", "embed_positions.weights"):
            offset, length = self._family.position_offset, self._config.max_positions
            if tensor.dim() == 2:
                tensor = tensor[offset : offset + length].contiguous()
            self._states[f"{side}_positions.weight"] = tensor
        elif name == "final_logits_bias":
            self._bias = tensor.flatten()
        elif name in ("shared.weight", "lm_head.weight") or rest == "embed_tokens.weight":
            self._matrices[name] = tensor
        else:
            self._states[name] = tensor  # which is no name of ours, and is reported as such

    def _refuse_if_not_finite(self, name: str, tensor: Tensor) -> None:
        if not tensor.isfinite().all():
            kind = "NaN" if tensor.isnan().any() else "infinite numbers"
            self._refuse(name, f"holds {kind}: download it again")

    def _checked_matrices(self) -> dict[str, Tensor]:
        """The embeddings and the output projection, by our names."""
        config, width, fields = self._config, self._config.d_model, self._directory.config
        tied = config.embedding_tying
        shared = ("shared.weight",) if tied != "target" else ()
        source = (*shared, "encoder.embed_tokens.weight")
        target = (*shared, "decoder.embed_tokens.weight", "lm_head.weight")
        output = ("lm_head.weight", *shared)
        if tied == "all":
            source = target = output = (*source, *target[1:])
        elif tied == "target":
            output = target
        matrices = {}
        for name, candidates in zip(_MATRICES, (source, target, output), strict=True):
            present = {c: self._matrices[c] for c in candidates if c in self._matrices}
            found = list(present.values())
            if not found:
                self._refuse(candidates[0], "is missing")
            if tied != "none" and any(not torch.equal(found[0], other) for other in found[1:]):
                raise ExportError(
                    f"{self._directory.path}: {CONFIG_FILE} says that {', '.join(candidates)} are "
                    f"one matrix, but they differ"
                )
            matrix = found[0]
            # Only a model without tied languages has a vocabulary of its own for the target.
            size = int(fields["vocab_size"])
            if tied != "all" and name != "source_embedding":
                size = int(fields.get("decoder_vocab_size") or size)
            self._check_weight(next(iter(present)), matrix, [size, width])
            matrices[name] = matrix
        return matrices

    def _add_embeddings(self, matrices: Mapping[str, Tensor]) -> None:
        found_before: Tensor | None = None
        for name, matrix in matrices.items():
            if matrix is not found_before:  # a tied matrix is filled up once
                found_before, filled = matrix, self._filled(matrix)
            self._states[f"{name}.weight"] = filled
            if name == "output_projection":
                self._states[f"{name}.bias"] = self._output_bias(matrix.size(0))

    def _filled(self, matrix: Tensor) -> Tensor:
        """The matrix with a row for every token of the padded vocabulary."""
        missing = self._config.vocab_size - matrix.size(0)
        if missing <= 0:
            return matrix
        return torch.cat((matrix, matrix.new_zeros(missing, matrix.size(1))))

    def _output_bias(self, num_tokens: int) -> Tensor:
        bias = torch.full((self._config.vocab_size,), NEVER)
        bias[:num_tokens] = 0.0
        if self._bias.numel():
            if self._bias.numel() != num_tokens:
                raise ExportError(
                    f"{self._directory.path}: final_logits_bias has {self._bias.numel()} numbers "
                    f"for {num_tokens} tokens"
                )
            bias[:num_tokens] = self._bias
        if excludes_pad(self._directory):
            bias[self._config.pad_id] = NEVER
        return bias

    def _add_positions(self) -> None:
        for side in _SIDES.values():
            if f"{side}_positions.weight" not in self._states:
                self._check_table()
                table = position_table(self._family, self._config.max_positions, self._config)
                self._states[f"{side}_positions.weight"] = table

    def _check_table(self) -> None:
        """Refuse a table of positions that no file holds, and that would be too large to make."""
        length, width = self._config.max_positions, self._config.d_model
        if (size := 4 * length * width) > _LARGEST_TABLE_BYTES:
            raise ExportError(
                f"{self._directory.config_file}: max_position_embeddings {length} and "
                f"d_model {width} make a table of {size:,} bytes, which the files do not hold: at "
                f"most {_LARGEST_TABLE_BYTES:,} are made"
            )


def position_table(family: Family, length: int, config: ModelConfig) -> Tensor:
    """The sinusoids [length, D] of a family whose files leave them out: sines, then cosines.

    Marian has the frequencies of Vaswani et al. (2017), section 3.5; M2M-100 those of
    tensor2tensor, computed in single precision as there.
    """
    half = config.d_model // 2
    if family.position_offset:
        step = math.log(10_000) / (half - 1)
        frequencies = torch.exp(torch.arange(half).float() * -step)
        start = family.position_offset
        positions = torch.arange(start, start + length).float()
    else:
        columns = torch.arange(half, dtype=torch.float64)
        frequencies = 10_000 ** (-2 * columns / config.d_model)
        positions = torch.arange(length, dtype=torch.float64)
    angles = positions.unsqueeze(1) * frequencies  # [length, D / 2]
    return torch.cat((angles.sin(), angles.cos()), dim=1).float()

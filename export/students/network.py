"""Converts a student's items to our network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from export.arithmetic import FixedSteps
from export.errors import ExportError
from export.layers import NEVER
from export.marian.binary import (
    INTGEMM8,
    INTGEMM16,
    LARGEST_SCALE,
    SMALLEST_SCALE,
    Item,
    is_scale,
    is_table,
    read_binary,
)
from export.marian.configuration import OPTIONS_ARRAY, open_npz, read_array
from export.students.options import checked_options
from model.bundle.config import LARGEST_SIZES, ConfigError, ModelConfig
from model.network.positions import marian_positions
from model.network.transformer import Transformer

Array = npt.NDArray[Any]

_EPSILON = 1e-6  # in Marian's layers/generic.h
_MAX_POSITIONS = 512  # sinusoids have no limit of their own
_VOCABULARY_MULTIPLE = 128  # a two-stage top-k needs equal groups of tokens
_BLOCKS = {
    **{
        f"{theirs}_{kind}{letter}": f"{ours}.{projection}.{parameter}"
        for theirs, ours in (("self", "self_attention"), ("context", "cross_attention"))
        for kind, parameter in (("W", "weight"), ("b", "bias"))
        for letter, projection in zip("qkvo", ("query", "key", "value", "output"), strict=True)
    },
    "ffn_W1": "feed_forward.inner.weight",
    "ffn_b1": "feed_forward.inner.bias",
    "ffn_W2": "feed_forward.outer.weight",
    "ffn_b2": "feed_forward.outer.bias",
    "rnn_W": "recurrence.candidate.weight",
    "rnn_Wf": "recurrence.forget.weight",
    "rnn_bf": "recurrence.forget.bias",
    **{
        f"{theirs}_{kind}": f"{ours}_norm.{parameter}"
        for theirs, ours in (
            ("self_Wo_ln", "self_attention"),
            ("context_Wo_ln", "cross_attention"),
            ("ffn_ffn_ln", "feed_forward"),
            ("rnn_ffn_ln", "recurrence"),
        )
        for kind, parameter in (("scale", "weight"), ("bias", "bias"))
    },
}
_THEIRS = {ours: theirs for theirs, ours in _BLOCKS.items()}
_LAYER = re.compile(r"(encoder|decoder)_l([1-9][0-9]{0,8})_(\w+)")
_OUR_LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(.+)")
ALPHA = "_QuantMultA"
# The output product's alpha. Marian calls it "none" when it multiplies with a shortlist, and its
# script `extract_stats.py` copies it, so that models with one vocabulary have the first two, and
# others the last one.
OUTPUT_ALPHAS = tuple(f"{name}{ALPHA}" for name in ("none", "Wemb", "decoder_Wemb"))
OUTPUT_BIAS = "decoder_ff_logit_out_b"


@dataclass(frozen=True)
class StudentNetwork:
    """A student's options and weights.

    Attributes:
        file: the weights.
        options: options in `special:model.yml`.
        arrays: float32 numbers by Marian's names, matrices [in, out].
        precision: the file's number type, such as "float32" or "intgemm8 with alphas"; for people.
        alphas: factors of a matrix's inputs before they are rounded to 8 bits, by our names of the
            linear maps; empty if the file has none.
        multipliers: multipliers of 8-bit weights, by Marian's names.
    """

    file: Path
    options: Mapping[str, Any]
    arrays: Mapping[str, Array]
    precision: str
    alphas: Mapping[str, float]
    multipliers: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> StudentNetwork:
        """Read a binary file or a .npz.

        Raises:
            ExportError: it is damaged, or an option or a type isn't supported; names it.
        """
        if file.suffix == ".npz":
            return cls._read_npz(file)
        items = read_binary(file)
        if OPTIONS_ARRAY not in items:
            raise ExportError(f"{file} has no {OPTIONS_ARRAY}: it does not say what its network is")
        options = checked_options(file, items.pop(OPTIONS_ARRAY).text())
        alphas = {n: items.pop(n) for n in list(items) if n.endswith(ALPHA)}
        scales = _checked_alphas(file, items, alphas)
        kinds = {INTGEMM8: "intgemm8", INTGEMM16: "intgemm16"}
        found = {kinds.get(item.kind, "float") for item in items.values()}
        precision = next((kind for kind in kinds.values() if kind in found), "float32")
        precision += " with alphas" if alphas else ""
        arrays = {name: item.numbers() for name, item in items.items()}
        multipliers = {n: float(i.multiplier()) for n, i in items.items() if i.kind == INTGEMM8}
        return cls(file, options, arrays, precision, scales, multipliers)

    @classmethod
    def _read_npz(cls, file: Path) -> StudentNetwork:
        with open_npz(file) as given:
            text = read_array(file, given, OPTIONS_ARRAY).tobytes().split(b"\0", 1)[0]
            options = checked_options(file, text)
            arrays = {}
            for name in given.files:
                if name.startswith("special:"):
                    continue
                array = read_array(file, given, name)
                if array.dtype.kind != "f" or not np.isfinite(array).all():
                    raise ExportError(
                        f"{file}: {name!r} has numbers of type {array.dtype}, not finite floats"
                    )
                arrays[name] = array.astype(np.float32)
        return cls(file, options, arrays, "float32", {})

    def config(self, sizes: tuple[int, int], eos_id: int, unk_id: int) -> ModelConfig:
        """Sizes and options, for vocabularies of these sizes.

        The token after the last one, without an embedding, is padding and starts the decoder.

        Raises:
            ExportError: an option is missing or contradicts another; names it.
        """
        for name in ("dim-emb", "enc-depth", "dec-depth", "transformer-heads"):
            self._size(name)
        inner = self._size("transformer-dim-ffn")
        if self.options.get("transformer-decoder-dim-ffn", 0) not in (0, inner):
            self._refuse("transformer-decoder-dim-ffn", f"is not transformer-dim-ffn, {inner}")
        rows = max(sizes) + 1
        try:
            config = ModelConfig(
                vocab_size=-(-rows // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE,
                d_model=self._size("dim-emb"),
                num_encoder_layers=self._size("enc-depth"),
                num_decoder_layers=self._size("dec-depth"),
                num_heads=self._size("transformer-heads"),
                ffn_dim=inner,
                positions="marian",
                max_positions=_MAX_POSITIONS,
                decoder="ssru",
                embedding_tying=self._tying(),
                output_bias=True,
                layer_norm_eps=_EPSILON,
                dropout=0.0,
                pad_id=rows - 1,
                unk_id=unk_id,
                bos_id=rows - 1,
                eos_id=eos_id,
            )
        except ConfigError as exc:
            raise ExportError(f"{self.file}: {exc}") from exc
        self._check_growth(config)
        return config

    def model(self, config: ModelConfig, sizes: tuple[int, int]) -> Transformer:
        """The network, in evaluation mode.

        Raises:
            ExportError: a weight is missing, unknown or of another shape than the options say.
        """
        with torch.device("meta"):
            model = Transformer(config)
        expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        states: dict[str, Tensor] = {}
        tables: dict[str, Array] = {}
        for name, array in self.arrays.items():
            if name == OUTPUT_BIAS or is_table(name):
                tables[name] = array
            elif (ours := _our_name(name)) is None:
                self._refuse(name, "is a weight that students do not have")
            else:
                states[ours] = self._weight(name, array, expected.get(ours))
        self._add_tables(states, tables, config, sizes)
        for name in expected:
            if name not in states:
                self._refuse(their_name(name), "is missing")
        model.load_state_dict(states, assign=True)
        model.tie_weights()
        table = marian_positions(config.max_positions, config.d_model)  # no weight of the file
        model.register_buffer("sinusoid", table, persistent=False)
        return model.eval()

    def steps(self) -> dict[str, FixedSteps]:
        """Steps of the file's 8-bit integers and of their inputs, by our names."""
        found = {}
        for name, multiplier in self.multipliers.items():
            own = _our_name(name)
            for ours in (own.removesuffix(".weight"),) if own else _uses_of(name):
                alpha = self.alphas.get(ours)
                found[ours] = FixedSteps((1 / multiplier,), None if alpha is None else 1 / alpha)
        return found

    def _weight(self, name: str, array: Array, expected: tuple[int, ...] | None) -> Tensor:
        if expected is None:
            self._refuse(name, "is in a layer that the options do not have")
        theirs = (1, *expected) if len(expected) == 1 else expected[::-1]
        if array.shape not in (theirs, expected[:1] if len(expected) == 1 else theirs):
            self._refuse(name, f"has shape {list(array.shape)}, the options say {list(theirs)}")
        numbers = array.reshape(expected) if len(expected) == 1 else array.T
        return torch.from_numpy(np.ascontiguousarray(numbers))

    def _add_tables(
        self,
        states: dict[str, Tensor],
        tables: dict[str, Array],
        config: ModelConfig,
        sizes: tuple[int, int],
    ) -> None:
        """Embeddings and the output's bias, filled up to the vocabulary's size."""
        shared = config.embedding_tying == "all"
        names = ("Wemb", "Wemb") if shared else ("encoder_Wemb", "decoder_Wemb")
        for side, name, size in zip(("source", "target"), names, sizes, strict=True):
            if name not in tables:
                self._refuse(name, "is missing")
            table, shape = tables[name], (size, config.d_model)
            if table.shape != shape:
                self._refuse(
                    name,
                    f"has shape {list(table.shape)}, but the {side} vocabulary has {size:,} pieces "
                    f"and dim-emb is {config.d_model}",
                )
            filled = np.zeros((config.vocab_size, config.d_model), np.float32)
            filled[:size] = table
            states[f"{side}_embedding.weight"] = torch.from_numpy(filled)
        states["output_projection.weight"] = states["target_embedding.weight"]
        if shared:
            states["source_embedding.weight"] = states["target_embedding.weight"]
        if unknown := tables.keys() - {*names, OUTPUT_BIAS}:
            self._refuse(min(unknown), "is there although the options tie embeddings otherwise")
        if OUTPUT_BIAS not in tables:
            self._refuse(OUTPUT_BIAS, "is missing")
        given = tables[OUTPUT_BIAS]
        if given.size != sizes[1]:
            self._refuse(
                OUTPUT_BIAS, f"has {given.size:,} numbers, the vocabulary {sizes[1]:,} pieces"
            )
        bias = torch.full((config.vocab_size,), NEVER)
        bias[: sizes[1]] = torch.from_numpy(given.ravel())
        states["output_projection.bias"] = bias

    def _tying(self) -> Any:
        every, source, output = map(
            self._flag, ("tied-embeddings-all", "tied-embeddings-src", "tied-embeddings")
        )
        if every or (source and output):
            return "all"
        if output:
            return "target"
        self._refuse("tied-embeddings", "is not set: an output of its own is not supported")

    def _flag(self, name: str) -> bool:
        value = self.options.get(name, False)
        if type(value) is not bool:
            self._refuse(name, f"is {value!r:.80}, neither true nor false")
        return value

    def _size(self, name: str) -> int:
        value, largest = self.options.get(name), max(LARGEST_SIZES.values())
        if type(value) is not int or not 1 <= value <= largest:
            self._refuse(name, f"is {value!r:.80}, not a number between 1 and {largest}")
        return value

    def _check_growth(self, config: ModelConfig) -> None:
        """Refuses sizes that the numbers of the file can't fill, before any are made."""
        there = sum(array.size for array in self.arrays.values())
        layers = config.num_encoder_layers + config.num_decoder_layers
        needed = layers * config.d_model * (config.d_model + 2 * config.ffn_dim)
        if needed > there:
            self._refuse(
                OPTIONS_ARRAY,
                f"says enc-depth {config.num_encoder_layers}, dec-depth "
                f"{config.num_decoder_layers}, dim-emb {config.d_model} and transformer-dim-ffn "
                f"{config.ffn_dim}: {needed:,} weights or more, but there are {there:,}",
            )

    def _refuse(self, name: str, why: str) -> NoReturn:
        raise ExportError(f"{self.file}: {name[:120]} {why}")


def _checked_alphas(
    file: Path, items: Mapping[str, Item], alphas: Mapping[str, Item]
) -> dict[str, float]:
    """The alphas by our names. A file has one for every quantised product, or none at all."""
    if not alphas:
        return {}
    values = {}
    for name, item in alphas.items():
        value = item.numbers()
        is_readable = is_table(name) or not item.is_quantized
        if not is_readable or value.size != 1 or not is_scale(value.item()):
            raise ExportError(
                f"{file}: {name} is {value.ravel()[:3].tolist()}, not one number from "
                f"{SMALLEST_SCALE:g} to {LARGEST_SCALE:g}"
            )
        values[name] = float(value.item())
    products = {n for n, i in items.items() if i.is_quantized and not is_table(n)}
    if missing := sorted({f"{name}{ALPHA}" for name in products} - values.keys()):
        raise ExportError(f"{file}: {missing[0]} is missing, the scale of its activations")
    output = next((values[name] for name in OUTPUT_ALPHAS if name in values), None)
    if output is None:
        raise ExportError(
            f"{file}: there is none of {', '.join(OUTPUT_ALPHAS)}, the scale of the output's "
            f"activations"
        )
    found = {"output_projection": output}
    for name, alpha in values.items():
        if ours := _our_name(name.removesuffix(ALPHA)):
            found[ours.removesuffix(".weight")] = alpha
    return found


def _our_name(theirs: str) -> str | None:
    """Our name of a weight of a layer, if it is one."""
    layer = _LAYER.fullmatch(theirs)
    if layer is None or layer[3] not in _BLOCKS:
        return None
    return f"{layer[1]}.layers.{int(layer[2]) - 1}.{_BLOCKS[layer[3]]}"


def _uses_of(table: str) -> tuple[str, ...]:
    """Our names for a table of embeddings."""
    if table == "encoder_Wemb":
        return ("source_embedding",)
    shared = ("source_embedding",) if table == "Wemb" else ()
    return ("target_embedding", "output_projection", *shared)


def their_name(ours: str) -> str:
    """Marian's name of one of our weights."""
    if (layer := _OUR_LAYER.fullmatch(ours)) and layer[3] in _THEIRS:
        return f"{layer[1]}_l{int(layer[2]) + 1}_{_THEIRS[layer[3]]}"
    return ours

"""A native Marian model, read as the directory of a MarianMT model.

It differs from what `transformers` makes of Marian's models, which have slightly different
sinusoids and layer normalisation: here both are Marian's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from export.errors import ExportError
from export.huggingface.directory import ModelDirectory, refuse_pointer
from export.layers import NEVER
from export.marian.configuration import (
    MarianFiles,
    MarianOptions,
    open_npz,
    read_array,
)
from export.marian.vocabulary import read_pieces
from model.bundle.manifest import file_sha256
from model.network.positions import marian_positions

_EPSILON = 1e-6  # in layers/generic.h
_MAX_POSITIONS = 512  # sinusoids have no limit of their own
_BLOCKS = {
    "self_Wo_ln": "self_attn_layer_norm",
    "context_Wo_ln": "encoder_attn_layer_norm",
    "ffn_ffn_ln": "final_layer_norm",
    "ffn_W1": "fc1.weight",
    "ffn_b1": "fc1.bias",
    "ffn_W2": "fc2.weight",
    "ffn_b2": "fc2.bias",
    **{
        f"{theirs}_{kind}{letter}": f"{name}.{projection}.{parameter}"
        for theirs, name in (("self", "self_attn"), ("context", "encoder_attn"))
        for kind, parameter in (("W", "weight"), ("b", "bias"))
        for letter, projection in zip(
            "qkvo", ("q_proj", "k_proj", "v_proj", "out_proj"), strict=True
        )
    },
}
_LAYER = re.compile(r"(encoder|decoder)_l(\d+)_(.+?)(?:_(scale|bias)(?:_pre)?)?")
_TOP = re.compile(r"(encoder|decoder)_top_ln_(scale|bias)(?:_pre)?")
_OPTIONS = {
    "d_model": "dim-emb",
    "encoder_layers": "enc-depth",
    "decoder_layers": "dec-depth",
    "encoder_attention_heads": "transformer-heads",
    "encoder_ffn_dim": "transformer-dim-ffn",
    "max_position_embeddings": "the rows of Wpos",
    "vocab_size": "the vocabulary",
}
_PARAMETERS = {"scale": "weight", "bias": "bias"}


@dataclass(frozen=True)
class MarianDirectory(ModelDirectory):
    """The model as `ModelDirectory` shows one; all weights by MarianMT's names.

    Attributes:
        weights: the .npz file.
        options: Marian's options of the network.
        contents: the tokenizer's files in MarianMT's format, by file name.
        sizes: tokens in the source vocabulary and in the target vocabulary.
    """

    weights: Path
    options: MarianOptions
    contents: Mapping[str, bytes]
    sizes: tuple[int, int]

    @classmethod
    def read(cls, path: Path) -> MarianDirectory:
        """The model's configuration and vocabularies; weights are read by `tensors`.

        Raises:
            ExportError: it is no such model, a file is missing or damaged, or an option isn't
                supported; names it.
        """
        files = MarianFiles.find(path)
        options = MarianOptions.read(files.weights)
        source, target = map(read_pieces, files.vocabularies)
        contents = {
            "vocab.json": json.dumps(source).encode(),
            "target_vocab.json": json.dumps(target).encode(),
            "source.spm": _sentencepiece(path, "source", files.vocabularies[0]),
            "target.spm": _sentencepiece(path, "target", files.vocabularies[1]),
        }
        sizes = max(source.values()) + 1, max(target.values()) + 1
        start = max(sizes)
        return cls(
            path,
            _config(options, start, target["</s>"]),
            _generation(files, start),
            {"separate_vocabs": files.vocabularies[0] != files.vocabularies[1]},
            files.weights,
            options,
            contents,
            sizes,
        )

    @property
    def config_file(self) -> Path:
        """The .npz, which has the options in it."""
        return self.weights

    def name_of(self, field: str) -> str:
        """The name of a field of config.json among Marian's options."""
        return _OPTIONS.get(field, field)

    def weight_files(self) -> list[Path]:
        """The .npz file with the weights."""
        return [self.weights]

    def content(self, name: str) -> bytes:
        """The content of a file of the tokenizer."""
        return self.contents[name]

    def checksums(self) -> dict[str, str]:
        """The SHA-256 of the weights, by its name in the bundle's origin."""
        return {"weights_sha256": file_sha256(self.weights)}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All weights by name, in float32, with the zeros from which Marian starts decoding.

        Raises:
            ExportError: the file is damaged, or holds a weight that isn't supported; names it.
        """
        rows = max(self.sizes) + 1
        bias = torch.full((rows,), NEVER)
        with open_npz(self.weights) as arrays:
            for name in arrays.files:
                if name.startswith("special:"):
                    continue
                array = read_array(self.weights, arrays, name)
                if array.dtype.kind != "f":
                    raise ExportError(
                        f"{self.weights}: {name!r} has numbers of type {array.dtype}, not floats"
                    )
                if not 1 <= array.ndim <= 2:
                    self._refuse_shape(name, array.shape, "one or two dimensions")
                tensor = torch.from_numpy(np.ascontiguousarray(array, np.float32))
                if name == "decoder_ff_logit_out_b":
                    if tensor.numel() > rows:
                        self._refuse_shape(name, array.shape, f"up to {rows} numbers")
                    bias[: tensor.numel()] = tensor.flatten()
                else:
                    yield from self._named(name, tensor, rows)
        yield "final_logits_bias", bias
        if self.options.num_positions is None:
            length, width = self.config["max_position_embeddings"], self.config["d_model"]
            table = marian_positions(length, width)
            for stack in ("encoder", "decoder"):
                yield f"model.{stack}.embed_positions.weight", table

    def _named(self, name: str, tensor: Tensor, rows: int) -> Iterator[tuple[str, Tensor]]:
        if found := _LAYER.fullmatch(name):
            stack, number, block, kind = found.groups()
            ours = _BLOCKS.get(block, block)
            parameter = f".{_PARAMETERS[kind]}" if kind else ""
            tensor = tensor.flatten() if tensor.size(0) == 1 else tensor.T.contiguous()
            yield f"model.{stack}.layers.{int(number) - 1}.{ours}{parameter}", tensor
        elif found := _TOP.fullmatch(name):
            yield f"model.{found[1]}.layer_norm.{_PARAMETERS[found[2]]}", tensor.flatten()
        elif name == "Wpos":
            for stack in ("encoder", "decoder"):
                yield f"model.{stack}.embed_positions.weight", tensor
        else:
            matrix = tensor.T if name.endswith("logit_out_W") else tensor
            width = self.config["d_model"]
            if matrix.dim() != 2 or matrix.size(0) > rows or matrix.size(1) != width:
                self._refuse_shape(name, tensor.shape, f"up to {rows} tokens of {width} numbers")
            for theirs in self._embeddings(name):
                yield theirs, _filled(matrix, rows)

    def _refuse_shape(self, name: str, shape: Sequence[int], expected: str) -> NoReturn:
        raise ExportError(f"{self.weights}: {name!r} has shape {list(shape)}, not {expected}")

    def _embeddings(self, name: str) -> tuple[str, ...]:
        """MarianMT's names of a matrix of the vocabulary's size; its own if it is unknown."""
        if name == "Wemb":
            if self.options.ties_all:
                return ("model.shared.weight",)
            return ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
        names = {
            "encoder_Wemb": "model.encoder.embed_tokens.weight",
            "decoder_Wemb": "model.decoder.embed_tokens.weight",
            "decoder_ff_logit_out_W": "lm_head.weight",
            "decoder_ff_logit_out_Wt": "lm_head.weight",
        }
        return (names.get(name, name),)


def _filled(matrix: Tensor, rows: int) -> Tensor:
    """The matrix with zeros up to `rows`: the last of them starts a translation."""
    filled = matrix.new_zeros(rows, matrix.size(1))
    filled[: matrix.size(0)] = matrix
    return filled


def _sentencepiece(path: Path, side: str, vocabulary: Path) -> bytes:
    """The model that cuts texts: the vocabulary itself, or a file beside it."""
    file = vocabulary if vocabulary.suffix == ".spm" else path / f"{side}.spm"
    if not file.is_file():
        raise ExportError(
            f"{file} is missing: texts are cut by SentencePiece models, others ({side}.bpe, say) "
            f"are not supported"
        )
    refuse_pointer(file)
    return file.read_bytes()


def _config(options: MarianOptions, start: int, eos_id: int) -> dict[str, Any]:
    """`special:model.yml` in the words of config.json; `start` is the token that has zeros."""
    heads, inner = options.get("transformer-heads", int), options.get("transformer-dim-ffn", int)
    return {
        "model_type": f"marian_npz_{options.norm}",
        "vocab_size": start + 1,
        "decoder_vocab_size": start + 1,
        "d_model": options.get("dim-emb", int),
        "encoder_layers": options.get("enc-depth", int),
        "decoder_layers": options.get("dec-depth", int),
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner,
        "activation_function": options.get("transformer-ffn-activation", str, "swish"),
        "max_position_embeddings": options.num_positions or _MAX_POSITIONS,
        "scale_embedding": options.num_positions is None,
        "layer_norm_eps": _EPSILON,
        "tie_word_embeddings": options.ties_output,
        "share_encoder_decoder_embeddings": options.ties_all,
        "pad_token_id": start,
        "eos_token_id": eos_id,
        "decoder_start_token_id": start,
    }


def _generation(files: MarianFiles, start: int) -> dict[str, Any]:
    """`decoder.yml` in the words of generation_config.json."""
    given = files.decoder
    try:
        beam_size = int(given.get("beam-size", 12))  # Marian's default
        penalty = float(given.get("normalize", 0.0))
        word_penalty = float(given.get("word-penalty", 0.0))
    except (TypeError, ValueError, OverflowError) as exc:
        raise ExportError(f"{files.weights.parent}: decoder.yml: {exc}") from exc
    if word_penalty:
        raise ExportError(
            f"{files.weights.parent}: decoder.yml: a word-penalty ({word_penalty}) is not "
            f"supported: set it to 0"
        )
    return {
        "decoder_start_token_id": start,
        "bad_words_ids": [[start]],
        "num_beams": beam_size,
        "length_penalty": penalty,  # scores are divided by length ** penalty, as there
        "early_stopping": True,  # a translation that ended keeps its place in the beam
    }

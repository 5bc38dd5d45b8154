"""Converts a Hugging Face configuration to ours.

All of these are the Transformer of `model/network/transformer.py` with other options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from export.errors import ExportError
from export.huggingface.directory import CONFIG_FILE, LARGEST_GROWTH, ModelDirectory
from export.huggingface.generation import forbids_pad
from model.bundle.config import (
    LARGEST_SIZES,
    Activation,
    ConfigError,
    EmbeddingTying,
    ModelConfig,
    NormPosition,
)

# Vocabularies are filled up to a multiple of it: a two-stage top-k needs equal groups of tokens.
_VOCABULARY_MULTIPLE = 128

_ACTIVATIONS: Mapping[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "swish": "silu",
    "silu": "silu",
}


@dataclass(frozen=True)
class Family:
    """Facts that the classes of `transformers` fix, besides those of a configuration.

    Attributes:
        name: common name of the architecture.
        norm: place of the layer normalisation; see `ModelConfig`.
        embedding_norm: whether embeddings are normalised; see `ModelConfig`.
        position_offset: rows of the position table before the first token's.
    """

    name: str
    norm: NormPosition
    embedding_norm: bool = False
    position_offset: int = 0


FAMILIES: Mapping[str, Family] = {
    "marian": Family("MarianMT", "post"),
    "pegasus": Family("Pegasus", "pre"),
    "m2m_100": Family("M2M-100 or NLLB", "pre", position_offset=2),
    "mbart": Family("mBART", "pre", embedding_norm=True, position_offset=2),
    "bart": Family("BART", "post", embedding_norm=True, position_offset=2),
    "marian_npz_post": Family("Marian", "post"),
    "marian_npz_pre": Family("Marian", "pre"),
}

_SIZES = {
    "vocab_size": "vocab_size",
    "d_model": "d_model",
    "num_encoder_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
    "num_heads": "encoder_attention_heads",
    "ffn_dim": "encoder_ffn_dim",
    "max_positions": "max_position_embeddings",
}


def family_of(directory: ModelDirectory) -> Family:
    """The architecture of a model.

    Raises:
        ExportError: it is not supported; names it.
    """
    kind = str(directory.config.get("model_type"))
    if kind not in FAMILIES:
        known = ", ".join(dict.fromkeys(family.name for family in FAMILIES.values()))
        raise ExportError(
            f"{directory.path / CONFIG_FILE}: models of the type {kind!r} are not supported; "
            f"supported are {known}"
        )
    return FAMILIES[kind]


def read_config(directory: ModelDirectory, num_pieces: int, unk_id: int) -> ModelConfig:
    """The model's sizes and options.

    Args:
        num_pieces: the larger number of tokens of its two vocabularies.

    Raises:
        ExportError: a field is missing or has a value that isn't supported; names it.
    """
    fields, family = directory.config, family_of(directory)
    file = directory.config_file
    try:
        activation = fields["activation_function"]
        if activation not in _ACTIVATIONS:
            raise ExportError(f"{file}: activation_function {activation!r} is not supported")
        heads = fields["encoder_attention_heads"]
        inner = fields["encoder_ffn_dim"]
        for name, value in (("attention_heads", heads), ("ffn_dim", inner)):
            if fields[f"decoder_{name}"] != value:
                raise ExportError(f"{file}: encoder_{name} and decoder_{name} have to be equal")
        eos_id = fields["eos_token_id"]
        config = ModelConfig(
            vocab_size=_vocab_size(directory, num_pieces),
            d_model=fields["d_model"],
            num_encoder_layers=fields["encoder_layers"],
            num_decoder_layers=fields["decoder_layers"],
            num_heads=heads,
            ffn_dim=inner,
            activation=_ACTIVATIONS[activation],
            norm=family.norm,
            positions="learned",
            max_positions=fields["max_position_embeddings"],
            embedding_tying=_tying(fields),
            scale_embeddings=bool(fields.get("scale_embedding", False)),
            embedding_norm=family.embedding_norm,
            output_bias=True,
            forbid_pad=forbids_pad(directory),
            layer_norm_eps=float(fields.get("layer_norm_eps", 1e-5)),
            dropout=float(fields.get("dropout", 0.0)),
            pad_id=fields["pad_token_id"],
            unk_id=unk_id,
            bos_id=_start_id(directory, eos_id),
            eos_id=eos_id,
        )
        _check_sizes(directory, config)
        _check_product(directory, config)
        return config
    except KeyError as exc:
        raise ExportError(f"{file}: there is no field {exc}") from exc
    except ExportError:
        raise  # names the file, and is a ValueError
    except (ConfigError, TypeError, ValueError, OverflowError) as exc:
        raise ExportError(f"{file}: {exc}") from exc


def _check_sizes(directory: ModelDirectory, config: ModelConfig) -> None:
    """Refuses sizes that no bundle may have, before anything of such a size is made.

    Raises:
        ConfigError: names the field as the model's file does.
    """
    for name, theirs in _SIZES.items():
        size, largest = getattr(config, name), LARGEST_SIZES[name]
        if size > largest:
            raise ConfigError(
                f"{directory.name_of(theirs)} is {size}, which is more than {largest}, the limit"
            )


def _check_product(directory: ModelDirectory, config: ModelConfig) -> None:
    """Refuses sizes that are possible, but not together in weight files of this size.

    Each weight has a byte at least. A file that is empty or not whole is named when it is read.

    Raises:
        ConfigError: names the fields as the model's file does.
    """
    width, inner = config.d_model, config.ffn_dim
    layers = config.num_encoder_layers * (4 * width + 2 * inner)
    layers += config.num_decoder_layers * (8 * width + 2 * inner)
    present = directory.num_weight_bytes
    for names, count in (
        (("vocab_size", "d_model"), (config.vocab_size - _VOCABULARY_MULTIPLE) * width),
        (("num_encoder_layers", "num_decoder_layers", "ffn_dim", "d_model"), layers * width),
    ):
        if 0 < LARGEST_GROWTH * present < count:
            sizes = (f"{directory.name_of(_SIZES[n])} {getattr(config, n)}" for n in names)
            raise ConfigError(
                f"{', '.join(sizes)} make {count:,} weights or more, and the files with weights "
                f"({directory.weight_files()[0].name}) have {present:,} bytes"
            )


def _vocab_size(directory: ModelDirectory, num_pieces: int) -> int:
    fields = directory.config
    size = max(int(fields["vocab_size"]), int(fields.get("decoder_vocab_size") or 0))
    if num_pieces > size:
        raise ExportError(
            f"{directory.path}: the tokenizer has {num_pieces} tokens, vocab_size in {CONFIG_FILE} "
            f"is {size}"
        )
    return -(-size // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE


def _tying(fields: Mapping[str, Any]) -> EmbeddingTying:
    if not fields.get("tie_word_embeddings", True):
        return "none"
    return "all" if fields.get("share_encoder_decoder_embeddings", True) else "target"


def _start_id(directory: ModelDirectory, eos_id: int) -> int:
    for fields in (directory.generation, directory.config):
        if (start := fields.get("decoder_start_token_id")) is not None:
            return int(start)
    return eos_id

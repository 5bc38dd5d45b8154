"""Writes a checkpoint as a directory that `transformers` reads.

A post-norm network becomes MarianMT, a pre-norm one Pegasus; the tokenizer is MarianTokenizer's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from export.errors import ExportError
from export.huggingface.comparison import (
    TransformersComparison,
    can_compare,
    compare_with_transformers,
)
from export.huggingface.directory import CONFIG_FILE, ModelDirectory
from export.huggingface.vocabularies import read_vocabularies
from export.huggingface.weights import LAYER, THEIRS
from export.output_directory import check_unused, new_directory
from export.parity import SENTENCES
from export.weights import sinusoidal_positions
from model.bundle.config import ModelConfig
from model.network.checkpoint import Checkpoint, load_checkpoint
from model.network.transformer import Transformer

_CLASSES = {
    "post": ("marian", "MarianMTModel"),
    "pre": ("pegasus", "PegasusForConditionalGeneration"),
}
_THEIR_EPSILON = 1e-5


def write_huggingface(checkpoint: Path, output: Path) -> TransformersComparison | None:
    """Write a checkpoint as a Hugging Face directory.

    Args:
        checkpoint: a directory that `model.network.checkpoint.save_checkpoint` wrote.
        output: the directory to write; it appears whole, or not at all.

    Returns:
        How it agrees with `transformers`; None where that isn't installed.

    Raises:
        CheckpointError: the checkpoint can't be read.
        ExportError: `transformers` has no such network, names the field; `output` is in the way;
            or the network differs from what `transformers` makes of the directory.
    """
    loaded = load_checkpoint(checkpoint)
    _check(loaded.config)
    check_unused(output)
    with new_directory(output, check_unused) as directory:
        _write_json(directory / CONFIG_FILE, _config(loaded.config))
        _write_json(directory / "generation_config.json", _generation(loaded.config))
        tensors = _tensors(loaded.model)
        safetensors.torch.save_file(tensors, directory / "model.safetensors", {"format": "pt"})
        (directory / "model.safetensors").chmod(0o644)  # safetensors makes private files
        _write_tokenizer(directory, loaded)
        if not can_compare():
            return None
        read = ModelDirectory.read(directory)
        languages = loaded.languages["source"], loaded.languages["target"]
        tokenizer = read_vocabularies(read, *languages).tokenizer(loaded.config)
        return compare_with_transformers(directory, loaded.model, tokenizer, SENTENCES)


def _check(config: ModelConfig) -> None:
    for name, value, supported in (
        ("layer_norm_eps", config.layer_norm_eps, (_THEIR_EPSILON,)),
        ("embedding_norm", config.embedding_norm, (False,)),
        ("decoder", config.decoder, ("self_attention",)),
        ("embed_start", config.embed_start, (True,)),
        ("embedding_tying", config.embedding_tying, ("all",)),
        ("positions", config.positions, ("sinusoidal",)),
        ("encoder_attention", config.encoder_attention, ("full",)),
        ("cross_attention", config.cross_attention, ("full",)),
        ("max_source_positions", config.max_source_positions, (None, config.max_positions)),
        ("max_target_positions", config.max_target_positions, (None, config.max_positions)),
    ):
        if value not in supported:
            raise ExportError(f"transformers has no network with {name} = {value!r}")


def _config(config: ModelConfig) -> dict[str, Any]:
    kind, cls = _CLASSES[config.norm]
    return {
        "architectures": [cls],
        "model_type": kind,
        "vocab_size": config.vocab_size,
        "decoder_vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.ffn_dim,
        "decoder_ffn_dim": config.ffn_dim,
        "activation_function": config.activation,
        "max_position_embeddings": config.max_positions,
        "scale_embedding": config.scale_embeddings,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "dtype": "float32",
        **_ids(config),
    }


def _ids(config: ModelConfig) -> dict[str, Any]:
    return {
        "pad_token_id": config.pad_id,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_id,
        "decoder_start_token_id": config.bos_id,
        "forced_eos_token_id": None,
    }


def _generation(config: ModelConfig) -> dict[str, Any]:
    return {**_ids(config), "max_length": config.max_positions, "num_beams": 1}


def _tensors(model: Transformer) -> dict[str, Tensor]:
    config = model.config
    table = model.target_embedding.weight.detach()
    bias: Tensor | None = model.output_projection.bias
    tensors = {
        "model.shared.weight": table.clone(),
        "final_logits_bias": table.new_zeros(1, config.vocab_size)
        if bias is None
        else bias.detach().clone().unsqueeze(0),
    }
    # transformers makes a table with all sines before the cosines, unless the file holds a table.
    positions = torch.from_numpy(sinusoidal_positions(config.max_positions, config.d_model))
    for stack in ("encoder", "decoder"):
        tensors[f"model.{stack}.embed_positions.weight"] = positions.clone()
    for name, tensor in model.state_dict().items():
        if ".layers." in name or ".final_norm." in name:
            tensors[f"model.{renamed(name)}"] = tensor.clone().contiguous()
    return tensors


def renamed(name: str) -> str:
    """The name that transformers has for a weight of a layer, or of the norm after a stack."""
    if layer := LAYER.fullmatch(name):
        stack, number, block, kind = layer.groups()
        return f"{stack}.layers.{number}.{THEIRS[block]}.{kind}"
    return name.replace(".final_norm.", ".layer_norm.")


def _write_tokenizer(directory: Path, checkpoint: Checkpoint) -> None:
    tokenizer, languages = checkpoint.tokenizer, checkpoint.languages
    for name in ("source.spm", "target.spm"):
        (directory / name).write_bytes(tokenizer.serialized())
    ids = {tokenizer.id_to_piece(i): i for i in range(tokenizer.vocab_size)}
    _write_json(directory / "vocab.json", ids)
    _write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": languages["source"],
            "target_lang": languages["target"],
            "model_max_length": checkpoint.config.max_positions,
            **{
                f"{name}_token": tokenizer.id_to_piece(i)
                for name, i in (
                    ("unk", tokenizer.unk_id),
                    ("eos", tokenizer.eos_id),
                    ("pad", tokenizer.pad_id),
                )
            },
        },
    )


def _write_json(file: Path, fields: dict[str, Any]) -> None:
    file.write_text(json.dumps(fields, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

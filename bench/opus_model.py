"""The speed model as a MarianMT directory of an OPUS-MT model's size, as its authors publish one.

Random weights with outputs of prescribed lengths (`bench.speed_model`), in the format that
`dragoman import` and CTranslate2's own converter read. As in OPUS-MT: 58,101 tokens, the activation
swish, a bias on the logits, and decoding that starts from `<pad>`, the last token, whose embedding
is zero. The three vocabulary matrices are not tied, which the construction forbids: the arithmetic
is the same, but both engines hold more memory than with a published model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from bench import speed_model
from model.bundle.config import ModelConfig

VOCAB_SIZE = 58_101
"""Number of tokens of opus-mt-en-de, and many others: 58,100 pieces and `<pad>`."""

_SMALL: tuple[int, dict[str, int]] = (1_501, {"num_encoder_layers": 2})
_MAX_POSITIONS = 512
_EOS_ID, _UNK_ID = 0, 1
# Log-probabilities have to agree in int8, so that the import succeeds: with logits as large as a
# trained model's they do. Beams would need larger ones, see `speed_model.CERTAINTY`.
_CERTAINTY = 1.0


def opus_config(size: str = "base") -> ModelConfig:
    """Sizes of an OPUS-MT model; "small" is one for tests."""
    vocab_size, fewer = (VOCAB_SIZE, {}) if size == "base" else _SMALL
    return speed_model.speed_config(
        size,
        vocab_size,
        **fewer,
        activation="silu",
        output_bias=True,
        max_positions=_MAX_POSITIONS,
        pad_id=vocab_size - 1,
        bos_id=vocab_size - 1,
        eos_id=_EOS_ID,
        unk_id=_UNK_ID,
    )


def write_opus_model(config: ModelConfig, directory: Path) -> None:
    """Write config, weights and tokenizer.

    Args:
        directory: an existing directory.
    """
    from export.huggingface.writer import renamed

    arrays = speed_model.speed_weights(config, certainty=_CERTAINTY)
    arrays["target_embedding.weight"][config.bos_id] = 0.0
    biases = np.random.default_rng(0).standard_normal((1, config.vocab_size), np.float32)
    tensors: dict[str, npt.NDArray[Any]] = {
        "final_logits_bias": 0.02 * biases,
        "lm_head.weight": arrays.pop("output_projection.weight"),
    }
    for side, stack in (("source", "encoder"), ("target", "decoder")):
        for ours, theirs in (("embedding", "embed_tokens"), ("positions", "embed_positions")):
            tensors[f"model.{stack}.{theirs}.weight"] = arrays.pop(f"{side}_{ours}.weight")
    tensors |= {f"model.{renamed(name)}": array for name, array in arrays.items()}
    safetensors.numpy.save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    _write_json(directory / "config.json", _fields(config))
    search = {"num_beams": 1, "max_length": config.max_positions, **_ids(config)}
    search["bad_words_ids"] = [[config.pad_id]]
    _write_json(directory / "generation_config.json", search)
    _write_tokenizer(config, directory)


def _fields(config: ModelConfig) -> dict[str, Any]:
    sizes = {
        f"{stack}_{name}": value
        for stack in ("encoder", "decoder")
        for name, value in (("attention_heads", config.num_heads), ("ffn_dim", config.ffn_dim))
    }
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": config.vocab_size,
        "decoder_vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        **sizes,
        "activation_function": "swish",
        "max_position_embeddings": config.max_positions,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
        "is_encoder_decoder": True,
        "dtype": "float32",
        **_ids(config),
    }


def _ids(config: ModelConfig) -> dict[str, Any]:
    return {
        "pad_token_id": config.pad_id,
        "bos_token_id": config.eos_id,
        "eos_token_id": config.eos_id,
        "decoder_start_token_id": config.bos_id,
        "forced_eos_token_id": config.eos_id,
    }


def _write_tokenizer(config: ModelConfig, directory: Path) -> None:
    """The pieces of `speed_model.write_tokenizer` with OPUS-MT's special ids."""
    import sentencepiece

    for name in ("source.spm", "target.spm"):
        speed_model.write_tokenizer(config, directory / name)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(directory / "source.spm"))
    # Ids without a piece to stand for are needed as well: CTranslate2 counts the entries.
    pieces = ["</s>", "<unk>", "<s>", "\u2581"]
    pieces += [processor.id_to_piece(i) for i in range(len(pieces), config.vocab_size - 1)]
    pieces.append("<pad>")
    _write_json(directory / "vocab.json", {piece: i for i, piece in enumerate(pieces)})
    fields = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "de"}
    _write_json(directory / "tokenizer_config.json", fields)


def _write_json(file: Path, fields: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(fields, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

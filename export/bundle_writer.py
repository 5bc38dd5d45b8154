"""Writes the files of a bundle. Free of torch."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx

from export.decoder_step_graph import build_decoder_step
from export.encoder_graph import build_encoder
from export.errors import ExportError
from export.graph_builder import MAX_PROTOBUF_BYTES
from export.weights import Weights
from model.bundle import installed_runtime_version, write_manifest
from model.config import ModelConfig
from model.tokenizer import TOKENIZER_FILE

DEFAULT_TOP_K = 8
ENCODER_FILE = "encoder.onnx"
DECODER_STEP_FILE = "decoder_step.onnx"


@dataclass(frozen=True)
class ExportSource:
    """What a bundle is made from.

    Attributes:
        config: the architecture.
        arrays: the state dict of `model.transformer.Transformer` as arrays.
        tokenizer_file: a SentencePiece model with `config.vocab_size` pieces.
        source_language, target_language: BCP-47 codes.
        provenance: where the weights came from; stored in the bundle as it is.
    """

    config: ModelConfig
    arrays: Mapping[str, npt.NDArray[Any]]
    tokenizer_file: Path
    source_language: str
    target_language: str
    provenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExportOptions:
    """How the bundle is made.

    Attributes:
        precision: fp32, fp16 or int8.
        name, version: how the model is called; the name defaults to "<source>-<target>".
        top_k: tokens that a step returns for each row unless the server is told otherwise. Beam
            search needs twice its beam size.
        model_card: a file to put into the bundle as MODEL_CARD.md.
    """

    precision: str = "fp32"
    name: str | None = None
    version: str = "1"
    top_k: int = DEFAULT_TOP_K
    model_card: Path | None = None


def write_bundle(
    source: ExportSource,
    options: ExportOptions,
    directory: Path,
    *,
    max_graph_bytes: int = MAX_PROTOBUF_BYTES,
) -> None:
    """Write an unproven bundle into the existing, empty `directory`.

    The same source and options give the same bytes. A graph of `max_graph_bytes` or more keeps
    its weights in a file of their own.

    Raises:
        ExportError: the model can't be exported; names the field or weight.
    """
    _check_exportable(source.config, options)
    weights = Weights(source.arrays, source.config)
    encoder = build_encoder(source.config, weights, options.precision)
    _save(encoder, directory / ENCODER_FILE, max_graph_bytes)
    step = build_decoder_step(source.config, weights, options.precision)
    _save(step, directory / DECODER_STEP_FILE, max_graph_bytes)
    shutil.copyfile(source.tokenizer_file, directory / TOKENIZER_FILE)
    if options.model_card is not None:
        shutil.copyfile(options.model_card, directory / "MODEL_CARD.md")
    write_manifest(directory, _manifest(source, options))


def _check_exportable(config: ModelConfig, options: ExportOptions) -> None:
    if config.head_dim % 8:
        raise ExportError(
            f"d_model / num_heads is {config.head_dim}, but the attention operator of the served "
            f"graphs needs a multiple of 8: train with another num_heads or d_model"
        )
    if not 1 <= options.top_k <= config.vocab_size:
        raise ExportError(f"top_k must be between 1 and vocab_size, not {options.top_k}")


def _manifest(source: ExportSource, options: ExportOptions) -> dict[str, Any]:
    config = source.config
    runtime = installed_runtime_version()
    if runtime is None:
        raise ExportError("ONNX Runtime is not installed: install dragoman[cpu]")
    major, minor = runtime.split(".")[:2]
    return {
        "name": options.name or f"{source.source_language}-{source.target_language}",
        "version": options.version,
        "architecture": config.to_dict(),
        "languages": {"source": source.source_language, "target": source.target_language},
        "special_ids": {
            "pad": config.pad_id,
            "unk": config.unk_id,
            "bos": config.bos_id,
            "eos": config.eos_id,
        },
        "limits": {
            "max_source_positions": config.max_positions,
            "max_target_positions": config.max_positions,
        },
        "precision": options.precision,
        "top_k": options.top_k,
        "graphs": {"encoder": ENCODER_FILE, "decoder_step": DECODER_STEP_FILE},
        "tokenizer": {"kind": "sentencepiece", "files": [TOKENIZER_FILE]},
        # Contrib operators carry no version of their own: only what was tried is promised.
        "onnxruntime": {"min": f"{major}.{minor}", "below": f"{major}.{int(minor) + 1}"},
        "provenance": dict(source.provenance),
    }


def _save(model: onnx.ModelProto, file: Path, max_bytes: int) -> None:
    if model.ByteSize() < max_bytes:
        file.write_bytes(model.SerializeToString(deterministic=True))
    else:
        onnx.save_model(model, file, save_as_external_data=True, location=f"{file.name}.data")

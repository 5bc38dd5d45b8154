"""The measured models, as half-precision bundles."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import speed_model
from bench.suite.artifacts import speed_texts
from export.bundle_writer import ExportOptions, ExportSource, write_bundle
from model.bundle.bundle import Bundle
from model.bundle.config import ModelConfig
from model.bundle.tokenizer import TOKENIZER_FILE, Tokenizer

ROOT = Path(__file__).resolve().parents[2]
CHECKPOINT = ROOT / "model" / "checkpoints" / "en-de-4"


@dataclass(frozen=True)
class MeasuredModel:
    """A model, ready to be measured.

    Attributes:
        name: "base", "big", "tiny" (of the smoke run) or "shipped".
        bundle: bundle in fp16, with graphs for GPUs.
    """

    name: str
    bundle: Bundle
    config: ModelConfig
    texts: list[str]

    def sources(self) -> list[tuple[int, ...]]:
        """The texts' token ids, each with its EOS."""
        tokenizer: Tokenizer = self.bundle.tokenizer()
        longest = self.bundle.max_source_positions - 1
        return [(*tokenizer.encode(text)[:longest], self.config.eos_id) for text in self.texts]


def prepare(name: str, directory: Path) -> MeasuredModel:
    """Make the bundle unless it exists; it is moved into place when complete."""
    bundle = directory / name / "fp16"
    if not bundle.exists():
        partial = bundle.with_name("fp16.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        if name == "shipped":
            _write_shipped(partial)
        else:
            _write_speed_model(name, directory / name, partial)
        partial.replace(bundle)
    loaded = Bundle.load(bundle, verify=False)
    texts = _english() if name == "shipped" else speed_texts(loaded.config)
    return MeasuredModel(name, loaded, loaded.config, texts)


def _write_shipped(partial: Path) -> None:
    from model.network.checkpoint import load_checkpoint

    loaded = load_checkpoint(CHECKPOINT)
    arrays = {name: tensor.numpy() for name, tensor in loaded.model.state_dict().items()}
    source = ExportSource(loaded.config, arrays, CHECKPOINT / TOKENIZER_FILE, "en", "de")
    write_bundle(source, ExportOptions("fp16", name="shipped"), partial)


def _write_speed_model(name: str, directory: Path, partial: Path) -> None:
    if name == "tiny":  # as wide as the construction needs
        config = speed_model.speed_config(
            "base", 2_000, d_model=256, num_heads=4, ffn_dim=256,
            num_encoder_layers=1, num_decoder_layers=2,
        )  # fmt: skip
    else:
        config = speed_model.speed_config(name)
    tokenizer = directory / TOKENIZER_FILE
    speed_model.write_tokenizer(config, tokenizer)
    weights: dict[str, np.ndarray[Any, Any]] = dict(speed_model.speed_weights(config))
    source = ExportSource(config, weights, tokenizer, "en", "de")
    write_bundle(source, ExportOptions("fp16", name=name), partial)


def _english() -> list[str]:
    """Sentences with realistic lengths: those of the parity check, one to three together."""
    from export.parity import SENTENCES

    count = len(SENTENCES)
    return [
        " ".join(SENTENCES[(i * 7 + j) % count] for j in range(1 + i % 3))
        for i in range(20 * count)
    ]

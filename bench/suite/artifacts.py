"""What the systems under test serve: one model, as our bundle and in CTranslate2's format."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import speed_model
from bench.load.errors import SourceError
from bench.load.source import read_texts
from bench.peers.conversion import convert
from model.config import ModelConfig
from model.tokenizer import TOKENIZER_FILE

LENGTHS_FILE = Path(__file__).with_name("lengths.csv")
"""Source and target tokens of 2,000 sentence pairs of newstest2013 (English, German), counted with
a joint vocabulary of 8,000 pieces: news, so longer than chat."""


@dataclass(frozen=True)
class Artifacts:
    """A model, ready for every system.

    Attributes:
        name: of the model, such as "base".
        precision: "int8" or "fp32".
        bundle: our bundle.
        converted: CTranslate2's model, in float32; it quantises when it loads.
        texts: what to send, one a line.
    """

    name: str
    precision: str
    bundle: Path
    converted: Path
    texts: Path

    @property
    def compute_type(self) -> str:
        """CTranslate2's name of the precision."""
        return {"int8": "int8", "fp32": "float32"}[self.precision]


def speed_texts(config: ModelConfig, seed: int = 0) -> list[str]:
    """Texts for the speed model with the lengths of real sentences."""
    draw = np.random.default_rng(seed)
    texts = []
    with LENGTHS_FILE.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            # The length word is the source's first token.
            count = int(row["source_tokens"]) - 1
            numbers = draw.integers(0, speed_model.num_words(config), count)
            words = [speed_model.length_word(int(row["target_tokens"]))]
            texts.append(" ".join([*words, *(speed_model.word(int(n)) for n in numbers)]))
    return texts


def prepare_speed_model(directory: Path, precision: str, preset: str = "base") -> Artifacts:
    """Make the speed model, or find it made."""
    vocab_size = 32_000 if preset == "base" else 2_000
    config = speed_model.speed_config(preset, vocab_size)
    made = _artifacts(directory, preset, precision)
    if not (made.bundle.exists() and made.converted.exists() and made.texts.exists()):
        weights = speed_model.speed_weights(config)
        tokenizer = directory / preset / TOKENIZER_FILE
        tokenizer.parent.mkdir(parents=True, exist_ok=True)
        speed_model.write_tokenizer(config, tokenizer)
        _make(made, config, weights, tokenizer, ("en", "de"))
        made.texts.write_text("\n".join(speed_texts(config)) + "\n", encoding="utf-8")
    return made


def prepare_checkpoint(
    directory: Path, name: str, checkpoint: Path, precision: str, source: Path
) -> Artifacts:
    """Make a trained model ready, with real texts from a file.

    Raises:
        SourceError: the file has no texts.
        CheckpointError: the checkpoint can't be read.
    """
    from model.checkpoint import load_checkpoint

    texts = read_texts(source)
    if not texts:
        raise SourceError(f"{source} has no text")
    made = _artifacts(directory, name, precision)
    if not (made.bundle.exists() and made.converted.exists()):
        loaded = load_checkpoint(checkpoint)
        weights = {key: tensor.numpy() for key, tensor in loaded.model.state_dict().items()}
        languages = (loaded.languages["source"], loaded.languages["target"])
        _make(made, loaded.config, weights, checkpoint / TOKENIZER_FILE, languages)
    made.texts.parent.mkdir(parents=True, exist_ok=True)
    made.texts.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return made


def _artifacts(directory: Path, name: str, precision: str) -> Artifacts:
    base = directory / name
    return Artifacts(name, precision, base / precision, base / "ctranslate2", base / "texts.txt")


def _make(
    made: Artifacts,
    config: ModelConfig,
    weights: Mapping[str, Any],
    tokenizer: Path,
    languages: tuple[str, str],
) -> None:
    """Write both models; each appears whole or not at all."""
    from export.bundle_writer import ExportOptions, ExportSource, write_bundle

    if not made.bundle.exists():
        partial = made.bundle.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        source = ExportSource(config, weights, tokenizer, *languages)
        options = ExportOptions(precision=made.precision, name=f"{made.name}-{made.precision}")
        write_bundle(source, options, partial)
        partial.replace(made.bundle)
    if not made.converted.exists():
        partial = made.converted.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        convert(config, weights, partial)
        partial.replace(made.converted)

"""The models under test, as our bundle and in CTranslate2's format."""

from __future__ import annotations

import csv
import hashlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import opus_model, speed_model
from bench.load.errors import SourceError
from bench.load.source import read_texts
from bench.peers.conversion import convert
from model.bundle.config import ModelConfig
from model.bundle.tokenizer import TOKENIZER_FILE

if TYPE_CHECKING:
    from export.bundle_writer import ExportOptions
    from export.cache_steps import CacheSteps

LENGTHS_FILE = Path(__file__).with_name("lengths.csv")
"""Source and target tokens of 2,000 sentence pairs of newstest2013 (English, German), counted with
a joint vocabulary of 8,000 pieces: news, so longer than chat."""


_ROOT = Path(__file__).resolve().parents[2]

WORK = _ROOT / "build" / "bench"
"""The folder in which models are made."""

SHIPPED_CHECKPOINT = _ROOT / "model" / "checkpoints" / "en-de-4"
"""The trained model that is measured beside the speed model: version 4 of the included one.

CTranslate2 reads no recurrent decoder, which later versions have.
"""

SHIPPED_TEXTS = Path(__file__).with_name("sentences.txt")
"""English sentences of everyday length for it, written for this benchmark."""

OPUS = "opus"
"""The name of the model of an OPUS-MT model's size."""

_PROOF_TEXTS = 8  # of an import


@dataclass(frozen=True)
class Artifacts:
    """A model, ready for every system.

    Attributes:
        precision: "int8" or "fp32".
        converted: CTranslate2's model, in float32; it quantises when it loads.
        texts: file with the texts to send, one a line.
    """

    name: str
    precision: str
    bundle: Path
    converted: Path
    texts: Path

    @property
    def compute_type(self) -> str:
        """The precision, as CTranslate2 names it."""
        return {"int8": "int8", "fp32": "float32"}[self.precision]


def speed_texts(config: ModelConfig) -> list[str]:
    """Texts for the speed model with the lengths of real sentences."""
    draw = np.random.default_rng(0)
    texts = []
    for source, target in _lengths():
        # The length word is the source's first token.
        numbers = draw.integers(0, speed_model.num_words(config), source - 1)
        words = [speed_model.length_word(target)]
        texts.append(" ".join([*words, *(speed_model.word(int(n)) for n in numbers)]))
    return texts


def longest_speed_text() -> str:
    """A text as long as the longest of `speed_texts`, with as long a translation as any."""
    sources, targets = zip(*_lengths(), strict=True)
    words = (speed_model.word(number) for number in range(max(sources) - 1))
    return " ".join([speed_model.length_word(max(targets)), *words])


def _lengths() -> list[tuple[int, int]]:
    """Source and target tokens of the sentence pairs in `LENGTHS_FILE`."""
    with LENGTHS_FILE.open(encoding="utf-8") as file:
        return [
            (int(row["source_tokens"]), int(row["target_tokens"])) for row in csv.DictReader(file)
        ]


def prepare_speed_model(directory: Path, precision: str, preset: str = "base") -> Artifacts:
    """Make the speed model unless it exists."""
    vocab_size = 32_000 if preset == "base" else 2_000
    config = speed_model.speed_config(preset, vocab_size)
    made = _artifacts(directory, preset, precision)
    made_from = digest()
    _drop_stale(made, made_from)
    if not (made.bundle.exists() and made.converted.exists() and made.texts.exists()):
        weights = speed_model.speed_weights(config)
        tokenizer = directory / preset / TOKENIZER_FILE
        tokenizer.parent.mkdir(parents=True, exist_ok=True)
        speed_model.write_tokenizer(config, tokenizer)
        texts = speed_texts(config)
        _make(made, config, weights, tokenizer, ("en", "de"), texts, made_from)
        made.texts.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return made


def prepare_checkpoint(
    directory: Path, name: str, checkpoint: Path, precision: str, source: Path
) -> Artifacts:
    """Make a trained model ready, with real texts from a file.

    Raises:
        SourceError: the file has no texts.
        CheckpointError: the checkpoint can't be read.
    """
    from model.network.checkpoint import load_checkpoint

    texts = read_texts(source)
    if not texts:
        raise SourceError(f"{source} has no text")
    made = _artifacts(directory, name, precision)
    made_from = digest(sorted(path for path in checkpoint.iterdir() if path.is_file()))
    _drop_stale(made, made_from)
    if not (made.bundle.exists() and made.converted.exists()):
        loaded = load_checkpoint(checkpoint)
        weights = {key: tensor.numpy() for key, tensor in loaded.model.state_dict().items()}
        languages = (loaded.languages["source"], loaded.languages["target"])
        tokenizer = checkpoint / TOKENIZER_FILE
        _make(made, loaded.config, weights, tokenizer, languages, texts, made_from)
    made.texts.parent.mkdir(parents=True, exist_ok=True)
    made.texts.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return made


def prepare_opus_model(directory: Path, size: str = "base") -> Artifacts:
    """Make the model of an OPUS-MT model's size, in int8, unless it exists.

    Ours is made by `dragoman import`, CTranslate2's by its own converter, from one directory in
    Hugging Face's format.
    """
    config = opus_model.opus_config(size)
    made = _artifacts(directory, OPUS if size == "base" else f"{OPUS}-{size}", "int8")
    made_from = digest()
    _drop_stale(made, made_from)
    if not (made.bundle.exists() and made.converted.exists() and made.texts.exists()):
        texts = speed_texts(config)
        with tempfile.TemporaryDirectory(dir=_made_directory(made.texts.parent)) as temporary:
            published = Path(temporary)
            opus_model.write_opus_model(config, published)
            _import(published, made.bundle, texts[:_PROOF_TEXTS])
            _convert_published(published, made.converted)
        for path in (made.bundle, made.converted):
            _note(path).write_text(made_from, encoding="utf-8")
        made.texts.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return made


def _import(published: Path, bundle: Path, texts: Sequence[str]) -> None:
    from export.bundle_writer import ExportOptions
    from export.importer import import_directory

    import_directory(published, bundle, ExportOptions("int8"), sentences=texts)


def _convert_published(published: Path, converted: Path) -> None:
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(published)).convert(str(converted), force=True)


def _made_directory(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@dataclass(frozen=True)
class Models:
    """The models to measure, and where they are made.

    Attributes:
        work: folder in which models are made.
        size: size of the speed model, "base" or "small".
        checkpoint: a trained model to measure as well; None for the speed model alone.
        texts: file with texts for the checkpoint, one a line.
    """

    work: Path = WORK
    size: str = "base"
    checkpoint: Path | None = SHIPPED_CHECKPOINT
    texts: Path = SHIPPED_TEXTS

    @property
    def names(self) -> list[str]:
        """The names of the models in results."""
        return [self.size] + ["shipped"] * (self.checkpoint is not None)

    def prepare(self, name: str, precision: str) -> Artifacts:
        """Make one model unless it exists."""
        if name == OPUS:
            return prepare_opus_model(self.work, self.size)
        if name == self.size:
            return prepare_speed_model(self.work, precision, self.size)
        assert self.checkpoint is not None, "otherwise it has no name"
        return prepare_checkpoint(self.work, name, self.checkpoint, precision, self.texts)


def digest(files: Sequence[Path] = ()) -> str:
    """A checksum of the code that makes the models, and of `files`, to detect stale models."""
    code = [Path(speed_model.__file__), Path(opus_model.__file__)]
    code.append(_ROOT / "bench" / "peers" / "conversion.py")
    for package in ("export", "model"):
        code += sorted((_ROOT / package).rglob("*.py"))
    made = hashlib.sha256()
    for file in [*code, *files]:
        made.update(hashlib.sha256(file.read_bytes()).digest())
    return made.hexdigest()


def _drop_stale(made: Artifacts, made_from: str) -> None:
    for path in (made.bundle, made.converted):
        note = _note(path)
        if path.exists() and not (note.exists() and note.read_text(encoding="utf-8") == made_from):
            shutil.rmtree(path)


def _note(path: Path) -> Path:
    """The file with the checksum of what a model was made from."""
    return path.with_suffix(".made")


def _artifacts(directory: Path, name: str, precision: str) -> Artifacts:
    base = directory / name
    return Artifacts(name, precision, base / precision, base / "ctranslate2", base / "texts.txt")


def _cache_steps(
    config: ModelConfig,
    weights: Mapping[str, Any],
    tokenizer: Path,
    texts: Sequence[str],
    options: ExportOptions,
) -> CacheSteps:
    """The steps of 8-bit caches, as an export measures them; none without such caches."""
    import torch

    from export.calibration import caches_in_int8, calibrated_steps
    from model.bundle.tokenizer import Tokenizer
    from model.network.transformer import Transformer

    if not caches_in_int8(config, options, in_language=True):
        return {}
    model = Transformer(config).eval()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return calibrated_steps(model, Tokenizer.load(tokenizer), texts)


def _make(
    made: Artifacts,
    config: ModelConfig,
    weights: Mapping[str, Any],
    tokenizer: Path,
    languages: tuple[str, str],
    texts: Sequence[str],
    made_from: str,
) -> None:
    """Write both models; each is moved into place when complete."""
    from export.bundle_writer import ExportOptions, ExportSource, write_bundle

    if not made.bundle.exists():
        partial = made.bundle.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        options = ExportOptions(precision=made.precision, name=f"{made.name}-{made.precision}")
        steps = _cache_steps(config, weights, tokenizer, texts[:_PROOF_TEXTS], options)
        source = ExportSource(config, weights, tokenizer, *languages, cache_steps=steps)
        write_bundle(source, options, partial)
        partial.replace(made.bundle)
        _note(made.bundle).write_text(made_from, encoding="utf-8")
    if not made.converted.exists():
        partial = made.converted.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        convert(config, weights, partial)
        partial.replace(made.converted)
        _note(made.converted).write_text(made_from, encoding="utf-8")

"""Small random models for tests: a checkpoint, and a bundle made from it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from model.bundle.bundle import Bundle
from model.bundle.config import ModelConfig
from model.bundle.tokenizer import TOKENIZER_FILE, Tokenizer, train_tokenizer

if TYPE_CHECKING:
    import torch

    from export.bundle_writer import ExportSource
    from model.bundle.shortlist import Shortlist
    from model.network.transformer import Transformer

SENTENCES = (
    "A dog is running across the green field.",
    "Two men are playing the guitar in the street.",
    "A woman in a red dress is reading a book.",
    "The children are swimming in the lake.",
    "Ein Hund rennt über die grüne Wiese.",
    "Zwei Männer spielen auf der Straße Gitarre.",
    "Eine Frau in einem roten Kleid liest ein Buch.",
    "Die Kinder schwimmen im See.",
)
VOCAB_SIZE = 320


def tiny_config(**overrides: Any) -> ModelConfig:
    """Two layers of width 32, with all parts of a big model, for steps of a millisecond."""
    fields: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "d_model": 32,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "num_heads": 2,
        "ffn_dim": 48,
        "positions": "learned",  # random ones: sines are too smooth for varied random outputs
        "max_positions": 64,
        "dropout": 0.0,
    }
    return ModelConfig.from_dict({**fields, **overrides})


def with_limits(bundle: Bundle, **limits: int) -> Bundle:
    """The bundle with other limits: `max_source_positions`, `max_target_positions`, `top_k`."""
    manifest = {**bundle.manifest, "top_k": limits.pop("top_k", bundle.top_k)}
    manifest["limits"] = {**bundle.manifest["limits"], **limits}
    return dataclasses.replace(bundle, manifest=manifest)


def random_model(config: ModelConfig, seed: int = 0) -> Transformer:
    """A model with random weights, biases and norms included.

    They are drawn so that greedy outputs vary, do not repeat one token forever, and sometimes end.
    A test that needs a random model is skipped if torch is not installed.
    """
    pytest.importorskip("torch", reason="a random model needs torch: `make venv`")
    import torch

    from model.network.transformer import Transformer

    torch.manual_seed(seed)
    model = Transformer(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            _draw(name, parameter, config)
    return model


def _draw(name: str, parameter: torch.Tensor, config: ModelConfig) -> None:
    unit = parameter.size(-1) ** -0.5
    if name.endswith("norm.weight"):
        parameter.uniform_(0.5, 1.5)
    elif name.endswith("candidate.weight"):
        parameter.normal_(0.0, 3.0 * unit)
    elif name.endswith("bias"):
        parameter.normal_(0.0, 0.1)
    elif "positions" in name:
        parameter.normal_(0.0, 2.0)
    elif "embedding" in name or "output_projection" in name:
        parameter.normal_(0.0, unit)
        parameter[config.eos_id] *= 2.0  # its logit varies more, so that it is sometimes the best
    elif "feed_forward" in name:
        parameter.normal_(0.0, 0.5 * unit)
    elif name.endswith(("key_projection", "value_projection")):
        parameter.normal_(0.0, unit)
    elif "query" in name or "key" in name:
        parameter.normal_(0.0, 4.0 * unit)  # attention with a focus
    else:
        parameter.normal_(0.0, 1.5 * unit)


def tiny_tokenizer(directory: Path, vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """A SentencePiece vocabulary of a few sentences, written to directory/tokenizer.model."""
    # The sentences have about 650 pieces; invented words supply the rest.
    letters = np.random.default_rng(0).integers(97, 123, (max(0, vocab_size - 600), 4))
    text = [*SENTENCES, *("".join(map(chr, word)) for word in letters)]
    return train_tokenizer(
        iter(text), directory / TOKENIZER_FILE, vocab_size=vocab_size, kind="bpe"
    )


def export_source(model: Transformer, directory: Path) -> ExportSource:
    """The source for `write_bundle`, with a tokenizer trained into `directory`."""
    from export.bundle_writer import ExportSource

    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / TOKENIZER_FILE).exists():
        tiny_tokenizer(directory, model.config.vocab_size)
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return ExportSource(model.config, arrays, directory / TOKENIZER_FILE, "en", "de")


def random_shortlist(vocab_size: int = VOCAB_SIZE, seed: int = 0) -> Shortlist:
    """The first 12 tokens, and a few random ones for each source token."""
    from model.bundle.shortlist import Shortlist

    draw = np.random.default_rng(seed)
    return Shortlist.of(12, [draw.integers(0, vocab_size, 9).tolist() for _ in range(vocab_size)])


def tiny_bundle(
    directory: Path,
    *,
    model: Transformer | None = None,
    precision: str = "fp32",
    top_k: int = 8,
    name: str | None = None,
    resident: bool | None = None,
    shortlist: Shortlist | None = None,
    seed: int = 0,
    **config: Any,
) -> Bundle:
    """Export `model`, or a tiny random one, to a bundle in `directory`.

    Args:
        directory: directory of the bundle, created if it doesn't exist.
        model: model to export; None for a random one.
        shortlist: the bundle's shortlist; None for a bundle without.
        precision: as in `ExportOptions`, or "int8 caches" for an int8 bundle with 8-bit caches.
        top_k, name, resident: same as in `ExportOptions`.
        seed, config: seed and configuration of the random model, without `model`.
    """
    model = model or random_model(tiny_config(**config), seed)
    source = export_source(model, directory.parent / f"{directory.name}.source")
    directory.mkdir(parents=True, exist_ok=True)
    from export.bundle_writer import ExportOptions, write_bundle

    if precision == "int8 caches":
        from export.calibration import calibrated_steps

        assert isinstance(source.tokenizer, Path)
        steps = calibrated_steps(model, Tokenizer.load(source.tokenizer), SENTENCES)
        source, precision = dataclasses.replace(source, cache_steps=steps), "int8"
    options = ExportOptions(precision=precision, top_k=top_k, name=name, resident=resident)
    write_bundle(dataclasses.replace(source, shortlist=shortlist), options, directory)
    return Bundle.load(directory)


def random_sources(
    config: ModelConfig, count: int, *, seed: int = 0, max_length: int = 20
) -> list[tuple[int, ...]]:
    """Source sequences of 1 to `max_length` tokens, each ending in EOS."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, max_length, count)
    first = max(config.pad_id, config.unk_id, config.bos_id, config.eos_id) + 1
    return [
        (*generator.integers(first, config.vocab_size, n).tolist(), config.eos_id) for n in lengths
    ]

"""A tiny corpus and a recipe that trains on it within seconds."""

from __future__ import annotations

import json
import random
from pathlib import Path

import torch
from torch import Tensor

from model.network.checkpoint import load_checkpoint

WORDS = ["red", "green", "blue", "small", "large", "round", "square", "box", "ball", "tree"]
TRANSLATED = ["rot", "grün", "blau", "klein", "groß", "rund", "eckig", "Kiste", "Ball", "Baum"]


def write_corpus(folder: Path, name: str, count: int, seed: int) -> None:
    generator = random.Random(seed)
    rows = [[generator.randrange(10) for _ in range(generator.randint(1, 6))] for _ in range(count)]
    for suffix, words in (("en", WORDS), ("de", TRANSLATED)):
        lines = [" ".join(words[i] for i in row) for row in rows]
        (folder / f"{name}.{suffix}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_recipe(folder: Path, output: str, **changes: object) -> Path:
    """A run of seconds: a one-layer model and word-by-word translation."""
    optimization = {
        "max_updates": 10,
        "batch_tokens": 64,
        "learning_rate": 5e-3,
        "warmup_updates": 5,
        "precision": "fp32",
        **changes,
    }
    values = "\n".join(f"{key} = {json.dumps(value)}" for key, value in optimization.items())
    path = folder / f"{output}.toml"
    path.write_text(
        f"""
name = "words"
output = {json.dumps(str(folder / output))}
[languages]
source = "en"
target = "de"
[data]
root = {json.dumps(str(folder))}
max_tokens = 32
train = [{{ name = "words", source = "train.en", target = "train.de" }}]
valid = [{{ name = "words", source = "valid.en", target = "valid.de" }}]
drop_validation_sources = false
[vocabulary]
vocab_size = 300
sampling_alpha = 0.5
[model]
preset = "tiny"
d_model = 32
ffn_dim = 64
num_encoder_layers = 1
num_decoder_layers = 1
max_positions = 64
[optimization]
{values}
[validation]
every_updates = 4
max_sentences = 4
[saving]
every_updates = 3
average_last = 2
""",
        encoding="utf-8",
    )
    return path


def final_weights(folder: Path) -> dict[str, Tensor]:
    return load_checkpoint(folder / "final").model.state_dict()


def assert_equal_weights(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name


def draw_from_two_corpora(path: Path) -> None:
    text = path.read_text()
    second = '{ name = "other", source = "valid.en", target = "valid.de", weight = 2.0 }'
    text = text.replace('"train.de" }]', f'"train.de" }}, {second}]')
    mixture = "mixture = { temperature = 2.0, epoch_pairs = 30 }"
    path.write_text(text.replace("max_tokens = 32", f"max_tokens = 32\n{mixture}"))

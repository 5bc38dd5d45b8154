"""The speed model's translations have the lengths that its sources ask for, in every engine."""

from __future__ import annotations

from pathlib import Path

import ctranslate2
import numpy as np
import pytest
import torch

from bench.peers.conversion import convert, vocabulary
from bench.speed_model import (
    FIRST_LENGTH_WORD,
    MAX_LENGTH,
    length_word,
    num_words,
    speed_config,
    speed_weights,
    word,
    write_tokenizer,
)
from export.bundle_writer import ExportOptions, ExportSource, write_bundle
from model.bundle.bundle import Bundle
from model.bundle.config import ModelConfig
from model.bundle.tokenizer import Tokenizer
from model.evaluation.search import BeamOptions, beam_search
from model.network.transformer import Transformer
from service.runtime.cpu.runner import OnnxRunner
from tests.runner_loops import greedy_steps

LENGTHS = [1, 2, 5, 17, 28, 60, 99, 128]


@pytest.fixture(scope="module")
def config() -> ModelConfig:
    return speed_config("small", vocab_size=1000, num_encoder_layers=3)


@pytest.fixture(scope="module")
def arrays(config: ModelConfig) -> dict[str, np.ndarray]:
    return speed_weights(config, seed=1)


@pytest.fixture(scope="module")
def tokenizer(config: ModelConfig, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    write_tokenizer(config, file)
    return Tokenizer.load(file)


@pytest.fixture(scope="module")
def sources(config: ModelConfig, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    draw = np.random.default_rng(2)
    made = []
    for length in LENGTHS:
        words = [word(int(n)) for n in draw.integers(0, num_words(config), draw.integers(0, 50))]
        made.append((*tokenizer.encode(" ".join([length_word(length), *words])), config.eos_id))
    return made


def test_every_word_is_one_token(config: ModelConfig, tokenizer: Tokenizer) -> None:
    text = f"{length_word(27)} {word(0)} {word(num_words(config) - 1)}"
    ids = tokenizer.encode(text)
    assert ids == [FIRST_LENGTH_WORD + 26, FIRST_LENGTH_WORD + MAX_LENGTH, config.vocab_size - 1]
    assert tokenizer.decode(ids) == text
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 1, 2, 3)


def test_with_a_beam_in_the_reference(
    config: ModelConfig, arrays: dict[str, np.ndarray], sources: list[tuple[int, ...]]
) -> None:
    model = Transformer(config).eval()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    for length, source in list(zip(LENGTHS, sources, strict=True))[:5]:
        ((best, *_),) = beam_search(model, torch.tensor([source]), options=BeamOptions(4))
        assert len(best.token_ids) == length


@pytest.mark.parametrize("compute_type", ["float32", "int8"])
def test_in_ctranslate2(
    config: ModelConfig,
    arrays: dict[str, np.ndarray],
    sources: list[tuple[int, ...]],
    compute_type: str,
    tmp_path: Path,
) -> None:
    convert(config, arrays, tmp_path / "converted")
    names = vocabulary(config)
    translator = ctranslate2.Translator(
        str(tmp_path / "converted"), compute_type=compute_type, intra_threads=1
    )
    results = translator.translate_batch(
        [[names[token] for token in source] for source in sources], beam_size=1
    )
    assert [len(result.hypotheses[0]) for result in results] == LENGTHS


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_in_our_graphs(
    config: ModelConfig,
    arrays: dict[str, np.ndarray],
    tokenizer: Tokenizer,
    sources: list[tuple[int, ...]],
    precision: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "tokenizer.model").write_bytes(tokenizer.serialized())
    (tmp_path / "bundle").mkdir()
    source = ExportSource(config, arrays, tmp_path / "tokenizer.model", "en", "de")
    write_bundle(source, ExportOptions(precision=precision), tmp_path / "bundle")
    runner = OnnxRunner(Bundle.load(tmp_path / "bundle"), max_rows=8, intra_op_threads=1)
    try:
        steps = greedy_steps(runner, sources, MAX_LENGTH + 1)
    finally:
        runner.close()
    chosen = np.stack([step.top_ids[:, 0] for step in steps])  # [steps, rows]
    assert (chosen == config.eos_id).argmax(axis=0).tolist() == LENGTHS

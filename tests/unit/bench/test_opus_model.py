"""The model of an OPUS-MT model's size: imported and converted from one published directory."""

from __future__ import annotations

from pathlib import Path

import ctranslate2
import numpy as np
import pytest
from ctranslate2.converters import TransformersConverter

from bench.opus_model import opus_config, write_opus_model
from bench.peers.ctranslate2_backend import CTranslate2Backend, CTranslate2Options
from bench.speed_model import MAX_LENGTH, length_word, num_words, word
from export.bundle_writer import ExportOptions
from export.importer import import_directory
from model.bundle.bundle import Bundle
from service.domain.requests import GenerationRequest
from service.runtime.cpu.runner import OnnxRunner
from tests.runner_loops import greedy_steps

LENGTHS = [1, 5, 28, 40]


def texts() -> list[str]:
    draw = np.random.default_rng(3)
    words = num_words(opus_config("small")) - 1  # the last id is the padding's
    return [
        " ".join([length_word(length), *(word(int(n)) for n in draw.integers(0, words, 12))])
        for length in LENGTHS
    ]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("opus") / "published"
    directory.mkdir()
    write_opus_model(opus_config("small"), directory)
    return directory


@pytest.fixture(scope="module")
def bundle(published: Path) -> Bundle:
    path = published.parent / "bundle"
    import_directory(published, path, ExportOptions("int8"), sentences=texts(), threads=1)
    return Bundle.load(path)


def sources(bundle: Bundle) -> list[tuple[int, ...]]:
    return [(*ids, bundle.config.eos_id) for ids in bundle.tokenizer().encode_batch(texts())]


def test_imported_it_has_the_lengths_that_sources_ask_for(bundle: Bundle) -> None:
    assert bundle.config.vocab_size % 128 == 0
    runner = OnnxRunner(bundle, max_rows=4, intra_op_threads=1)
    try:
        steps = greedy_steps(runner, sources(bundle), MAX_LENGTH + 1)
    finally:
        runner.close()
    chosen = np.stack([step.top_ids[:, 0] for step in steps])
    assert (chosen == bundle.config.eos_id).argmax(axis=0).tolist() == LENGTHS


@pytest.mark.skipif("int8" not in ctranslate2.get_supported_compute_types("cpu"), reason="no int8")
async def test_ctranslate2_s_own_conversion_gives_the_same(
    published: Path, bundle: Bundle, tmp_path: Path
) -> None:
    TransformersConverter(str(published)).convert(str(tmp_path / "converted"))
    backend = CTranslate2Backend(tmp_path / "converted", CTranslate2Options())
    requests = [GenerationRequest(ids) for ids in sources(bundle)]
    await backend.start()
    outputs = await backend.translate(requests, [MAX_LENGTH + 1] * len(requests))
    await backend.stop()
    assert [len(output.token_ids) for output in outputs] == LENGTHS
    assert all(output.ended for output in outputs)

"""Imported models translate as `transformers` does: token ids, texts, the served search."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from export.bundle_writer import ExportOptions
from export.huggingface.directory import ModelDirectory
from export.huggingface.vocabularies import read_marian
from export.importer import Imported, import_directory
from model.bundle import Bundle
from model.config import ModelConfig
from model.piece_tokenizer import PieceTokenizer
from service.decoding.requests import GenerationRequest, GenerationResult, SearchOptions
from service.engine.engine import Engine, EngineConfig
from service.runtime.cpu.runner import OnnxRunner
from tests import foreign_models
from tests.integration.servers import running_bundle

# Real OPUS-MT vocabularies, a directory each, as they are published; not part of the project.
VOCABULARIES = "DRAGOMAN_VOCABULARIES"
MAX_NEW_TOKENS = 30


@dataclass(frozen=True)
class Case:
    """A model of `transformers` and the bundle that was made of its directory."""

    model: Any
    tokenizer: Any
    bundle: Bundle
    imported: Imported
    texts: list[str]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    path = tmp_path_factory.mktemp("import")
    model = foreign_models.marian(path / "model")
    imported = import_directory(path / "model", path / "bundle", ExportOptions("fp32"), threads=1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path / "model")
    texts = foreign_models.lines(50, seed=1)
    return Case(model, tokenizer, Bundle.load(path / "bundle"), imported, texts)


async def search(
    case: Case, sources: Sequence[Sequence[int]], beam_size: int
) -> list[GenerationResult]:
    config = case.bundle.config
    engine = Engine(
        OnnxRunner(case.bundle, max_rows=32, intra_op_threads=1),
        EngineConfig(bos_id=config.bos_id, eos_id=config.eos_id, max_waiting=1000),
    )
    await engine.start()
    options = SearchOptions(beam_size=beam_size, max_new_tokens=MAX_NEW_TOKENS)
    requests = [GenerationRequest(tuple(source), options) for source in sources]
    results = [await generation.result() for generation in engine.submit_many(requests)]
    await engine.stop()
    return results


@pytest.mark.parametrize("beam_size", [1, 4])
async def test_translations_have_the_tokens_of_transformers(case: Case, beam_size: int) -> None:
    sources = [case.tokenizer(text)["input_ids"] for text in case.texts]
    results = await search(case, sources, beam_size)
    num_ended = 0
    for source, result in zip(sources, results, strict=True):
        with torch.inference_mode():
            expected = case.model.generate(
                torch.tensor([source]),
                num_beams=beam_size,
                max_length=None,
                max_new_tokens=MAX_NEW_TOKENS,
                forced_eos_token_id=None,
                renormalize_logits=True,  # padding, which is never chosen, has no probability
            )[0].tolist()[1:]
        ended = case.bundle.config.eos_id in expected
        found = [*result.token_ids, *([case.bundle.config.eos_id] if ended else [])]
        assert found == expected
        num_ended += ended
    assert len({tuple(result.token_ids) for result in results}) > len(results) / 3
    assert len(results) / 6 < num_ended


def test_an_import_tells_what_was_proved(case: Case) -> None:
    provenance = case.bundle.manifest["provenance"]
    assert provenance["imported_from"]["architecture"] == "MarianMT"
    assert provenance["agreement"]["transformers"] == transformers.__version__
    assert provenance["proof"]["num_sentences"] == case.imported.proof.num_sentences
    assert (case.bundle.source_language, case.bundle.target_language) == ("en", "de")


async def test_a_served_text_is_that_of_transformers(case: Case) -> None:
    async with running_bundle(case.bundle.path, in_process=True) as real:
        for text in ("A dog is running.", "Die Kinder schwimmen im See."):
            source = case.tokenizer(text, return_tensors="pt")
            limit = 2 * source["input_ids"].shape[1] + 50
            expected = case.model.generate(
                **source,
                num_beams=1,
                max_length=None,
                max_new_tokens=limit,
                forced_eos_token_id=None,
            )[0]
            [found] = (await real.client.translate([text], return_tokens=True)).translations
            assert found.text.strip() == case.tokenizer.decode(expected, skip_special_tokens=True)


def check_tokenizer(
    theirs: Any, ours: PieceTokenizer, texts: Sequence[str], num_decoded: int
) -> None:
    for text, ids in zip(texts, ours.encode_batch(texts), strict=True):
        assert [*ids, ours.eos_id] == theirs(text)["input_ids"], text
        assert ids == ours.encode(text)
        assert len(ours.encoded_spans(text)) == len(ids)
    draw = np.random.default_rng(0)
    for _ in range(num_decoded):
        ids = draw.integers(0, len(ours.vocabulary.pieces), draw.integers(0, 12)).tolist()
        text = ours.target.decode(ids)
        assert text.strip() == theirs.decode(ids, skip_special_tokens=True)
        spans = ours.target.decoded_spans(ids)
        assert len(spans) == len(ids)
        assert all(0 <= span.start <= span.end <= len(text) for span in spans)


def test_token_ids_and_texts_are_those_of_transformers(case: Case) -> None:
    ours = case.bundle.tokenizer()
    assert isinstance(ours, PieceTokenizer)
    check_tokenizer(case.tokenizer, ours, foreign_models.lines(1000), 500)


def test_special_symbols_in_a_text_stay_text(case: Case) -> None:
    tokenizer = case.bundle.tokenizer()
    config = case.bundle.config
    for text in ("</s>", "<pad>", "a </s> b <pad>", "<unk>"):
        assert not {config.eos_id, config.pad_id} & set(tokenizer.encode(text))


@pytest.mark.parametrize("name", ["opus-mt-en-mg", "opus-mt-tc-big-fr-en"])
def test_real_vocabularies(name: str) -> None:
    root = os.environ.get(VOCABULARIES)
    if root is None:
        pytest.skip(f"{VOCABULARIES} names no directory of real OPUS-MT vocabularies")
    path = Path(root) / name
    directory = ModelDirectory.read(path)
    vocabularies = read_marian(directory)
    fields = directory.config
    config = ModelConfig(
        vocabularies.num_pieces, 8, 1, 1, 1, 8,
        pad_id=fields["pad_token_id"], bos_id=fields["pad_token_id"],
        eos_id=fields["eos_token_id"], unk_id=vocabularies.unk_id,
    )  # fmt: skip
    theirs = transformers.AutoTokenizer.from_pretrained(path)
    check_tokenizer(theirs, vocabularies.tokenizer(config), foreign_models.lines(10_000), 2000)

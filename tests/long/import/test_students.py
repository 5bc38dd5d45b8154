"""Random students of each size and trained ones translate as fxtranslate does.

And as an independent network in NumPy, which reads the same files.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from bench.peers import student_backend
from bench.suite.artifacts import SHIPPED_TEXTS
from dragoman import VerbatimKinds
from export.bundle_writer import ExportOptions
from export.importer import import_directory
from export.students.reader import read_student
from export.students.writer import write_student
from model.bundle.bundle import Bundle
from model.bundle.tokenizer import Tokenizer
from model.data.corpus import EncodedText
from model.data.recipe import load_recipe
from model.evaluation.search import greedy_search
from model.network.checkpoint import load_checkpoint, save_checkpoint
from model.network.transformer import Transformer
from model.training.post_norm import post_norm
from model.training.training import Trainer
from tests.integration.servers import running_bundle
from tests.marian_network import MarianNetwork
from tests.parity.test_import_student import SIZES, sentences, write
from tests.unit.model.training.tiny_training import write_corpus, write_recipe

NUM_SENTENCES = 200
# Random weights make many tokens nearly equal.
LEAST_IDENTICAL = 0.2
TEXTS = [
    text
    for file in (SHIPPED_TEXTS, Path("tests/parity/sentences.en"))
    for text in file.read_text().splitlines()
    if len(text) <= 60
]
NUM_SUREST = 100
MOST_TOKENS = 60


@pytest.mark.parametrize(("size", "fields"), SIZES, ids=lambda x: str(x))
def test_translations_are_those_of_fxtranslate(
    tmp_path: Path, size: str, fields: dict[str, Any]
) -> None:
    pytest.importorskip("fxtranslate", reason="needs fxtranslate: pip install fxtranslate")
    write(tmp_path / "ende", size, fields)
    comparison = read_student(tmp_path / "ende", None).comparison
    assert comparison is not None
    agreement = comparison.compare(sentences(NUM_SENTENCES), None)
    print(f"{size} {fields}: {agreement}")
    assert agreement.num_identical >= LEAST_IDENTICAL * NUM_SENTENCES


@pytest.fixture(scope="module")
def shipped() -> tuple[Transformer, Tokenizer]:
    """The weights that ship, turned into a student's: texts are rough, but no random ones."""
    torch.set_num_threads(1)
    found = load_checkpoint(Path("model/checkpoints/en-de"))
    eos_id = found.tokenizer.eos_id
    sources = [found.tokenizer.encode(text) for text in TEXTS[:20]]
    targets = []
    for source in sources:
        (best,) = greedy_search(found.model, torch.tensor([[*source, eos_id]]))
        targets.append([i for i in best.token_ids if i != eos_id])
    return post_norm(found.model, EncodedText(sources, targets)), found.tokenizer


@pytest.mark.parametrize("tying", ["all", "target"])
async def test_students_of_the_weights_that_ship(
    tmp_path: Path, shipped: tuple[Transformer, Tokenizer], tying: Literal["all", "target"]
) -> None:
    """With one vocabulary and with two: exported, imported, proven and served.

    One rounding that differs changes much in a network that was not trained as a student: only the
    sentences count of which the other network is surest.
    """
    engine = pytest.importorskip("fxtranslate", reason="needs fxtranslate: pip install fxtranslate")
    model, tokenizer = shipped
    languages = {"source": "en", "target": "de"}
    save_checkpoint(tmp_path / "ours", retied(model, tying), tokenizer, languages=languages)
    write_student(tmp_path / "ours", files := tmp_path / "files", "int8", TEXTS[:30])
    made = import_directory(files, tmp_path / "bundle", ExportOptions("int8"), num_sentences=6)
    assert made.proof is not None
    content = (files / "model.ende.intgemm.alphas.bin").read_bytes()
    network, pieces = MarianNetwork(content), read_student(files, None).tokenizer
    given: dict[str, tuple[float, str]] = {}
    for text in TEXTS:
        token_ids = network.translate([*pieces.encode(text), 0], MOST_TOKENS)
        given[text] = network.lead, pieces.target.decode(token_ids).strip()
    texts = sorted(given, key=given.__getitem__)[-NUM_SUREST:]
    vocabularies = [file.read_bytes() for file in sorted(files.glob("*vocab.*.spm"))]
    translator = engine.Translator(content, vocabularies[0], vocabularies[-1], None)
    async with running_bundle(tmp_path / "bundle", in_process=True) as real:
        batch = await real.client.translate(
            texts,
            verbatim=VerbatimKinds.none(),
            split_sentences=False,
            adapt_letter_case=False,
            max_new_tokens=MOST_TOKENS,
        )
    found = [translation.text.strip() for translation in batch.translations]
    as_fxtranslate = sum(map(str.__eq__, found, (translator.translate(t).strip() for t in texts)))
    as_numpy = sum(map(str.__eq__, found, (given[text][1] for text in texts)))
    print(f"{tying}: {as_fxtranslate} of {NUM_SUREST} as fxtranslate, {as_numpy} as NumPy")
    assert as_fxtranslate >= 0.9 * NUM_SUREST
    assert as_numpy >= 0.95 * NUM_SUREST


def retied(model: Transformer, tying: Literal["all", "target"]) -> Transformer:
    """The network with the same embeddings, tied otherwise."""
    config = dataclasses.replace(model.config, embedding_tying=tying)
    made, states = Transformer(config).eval(), dict(model.state_dict())
    states["source_embedding.weight"] = states["target_embedding.weight"].clone()
    made.load_state_dict(states)
    return made


def test_a_trained_student_translates_as_fxtranslate_does(tmp_path: Path) -> None:
    """Trained, exported in Marian's files, and imported from them.

    Its sums saturate in fxtranslate more often than those of random weights.
    """
    pytest.importorskip("fxtranslate", reason="needs fxtranslate: pip install fxtranslate")
    write_corpus(tmp_path, "train", 2_000, seed=1)
    write_corpus(tmp_path, "valid", NUM_SENTENCES, seed=2)
    recipe = write_recipe(
        tmp_path, "run", max_updates=800, batch_tokens=512, learning_rate=2e-3, label_smoothing=0.0
    )
    student = 'preset = "student-tiny"\ndropout = 0.0\nd_model = 64'
    text = recipe.read_text().replace('preset = "tiny"\nd_model = 32', student)
    recipe.write_text(text.replace("sampling_alpha = 0.5", "sampling_alpha = 0.0"))
    final = Trainer(load_recipe(recipe), device="cpu", show_progress=False).run()
    given = (tmp_path / "valid.en").read_text().splitlines()
    right = (tmp_path / "valid.de").read_text().splitlines()
    write_student(final, tmp_path / "files", "int8", given)
    made = import_directory(
        tmp_path / "files", tmp_path / "bundle", ExportOptions("int8"), sentences=given[:10]
    )
    print(made.agreement)
    assert made.agreement.num_sentences == NUM_SENTENCES
    assert made.agreement.num_identical >= 0.8 * NUM_SENTENCES
    translated = student_backend.fxtranslate(tmp_path / "files", Bundle.load(tmp_path / "bundle"))
    assert sum(map(str.__eq__, translated(given), right)) >= 0.5 * NUM_SENTENCES  # it has learnt

"""Random students of each size and a trained one translate 200 sentences as fxtranslate does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.peers import student_backend
from export.bundle_writer import ExportOptions
from export.importer import import_directory
from export.students.reader import read_student
from export.students.writer import write_student
from model.bundle.bundle import Bundle
from model.data.recipe import load_recipe
from model.training.training import Trainer
from tests.parity.test_import_student import SIZES, sentences, write
from tests.unit.model.training.tiny_training import write_corpus, write_recipe

NUM_SENTENCES = 200
# Random weights make many tokens nearly equal.
LEAST_IDENTICAL = 0.2


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

"""Preparation: one recipe for raw and prepared text, no validation sentence left in training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from model.data.corpus import read_lines, read_parallel
from model.data.prepare_corpus import REPORT_FILE, prepare
from model.data.recipe import Recipe, load_recipe
from tests.unit.model.data.two_corpora import TWO_CORPORA

THINGS = ["house", "street", "garden", "kitchen", "window", "letter", "summer", "teacher"]
DINGE = ["Haus", "Straße", "Garten", "Küche", "Fenster", "Brief", "Sommer", "Lehrer"]


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    raw = tmp_path / "raw"
    raw.mkdir()
    sentences = [f"My {one} is behind a {two}." for one in THINGS for two in THINGS if one != two]
    saetze = [f"{one} ist hinter {two}." for one in DINGE for two in DINGE if one != two]
    write(raw / "one" / "train.en", [*sentences, "Hello!", "Hello", "Nobody asked us.", ""])
    write(raw / "one" / "train.de", [*saetze, "Hallo!", "Hallo", "Wir wurden nicht gefragt.", ""])
    write(raw / "one" / "valid.en", ["Nobody asked us!", "They left early today."])
    write(raw / "one" / "valid.de", ["Niemand fragte uns.", "Sie gingen heute früh."])
    write(
        raw / "two" / "train.en", ["hello", "They left early today.", "Birds fly south.", "Fine."]
    )
    write(raw / "two" / "train.de", ["hallo", "Sie gingen früh.", "Vögel ziehen fort.", "Gut."])
    write(raw / "two" / "train.doc", ["a", "a", "b", "b"])
    path = tmp_path / "recipe.toml"
    path.write_text(TWO_CORPORA, encoding="utf-8")
    return load_recipe(path, data_root=raw)


def test_training_text_is_free_of_repetitions_and_of_held_out_sentences(
    recipe: Recipe, tmp_path: Path
) -> None:
    write(tmp_path / "tests" / "other.en", ["birds fly south"])
    output = tmp_path / "prepared"
    prepare(recipe, output, [tmp_path / "tests" / "other.en"], seed=1)
    one = read_parallel(output / "one" / "train.en", output / "one" / "train.de")
    two = read_parallel(output / "two" / "train.en", output / "two" / "train.de")
    report = json.loads((output / REPORT_FILE).read_text())
    assert (report["one"]["raw"], report["one"]["kept"]) == (60, 57)
    assert (report["one"]["empty"], report["one"]["repeated"]) == (1, 1)
    assert report["one"]["near twin of a validation pair"] == 1
    assert (report["two"]["repeated"], report["two"]["in a test set"]) == (1, 1)
    assert (report["two"]["in validation"], report["two"]["kept"]) == (1, 1)
    assert len(one) == 57 + report["one"]["paragraphs"] + report["one"]["variants"]
    assert report["one"]["paragraphs"] > 0
    assert report["one"]["variants"] > 0
    text = " ".join([*one.sources, *two.sources]).casefold()
    assert not any(s in text for s in ("nobody asked", "left early", "birds fly"))
    assert read_lines(output / "one" / "valid.en") == read_lines(recipe.data.valid[0].source)


def test_the_same_seed_writes_the_same_files(recipe: Recipe, tmp_path: Path) -> None:
    for name in ("first", "second"):
        prepare(recipe, tmp_path / name, [], seed=1)
    prepare(recipe, tmp_path / "third", [], seed=2)
    first, second, third = (
        (tmp_path / name / "one" / "train.de").read_bytes() for name in ("first", "second", "third")
    )
    assert first == second != third


def test_of_a_large_corpus_a_part_is_kept_in_its_order(recipe: Recipe, tmp_path: Path) -> None:
    prepare(recipe, tmp_path / "all", [], seed=1)
    prepare(recipe, tmp_path / "part", [], seed=1, most_characters=1000)
    lines = read_lines(tmp_path / "all" / "one" / "train.de")
    kept = read_lines(tmp_path / "part" / "one" / "train.de")
    assert sum(map(len, lines)) > 1500
    assert 500 < sum(map(len, kept)) < 1500
    rest = iter(lines)
    assert all(line in rest for line in kept)
    report = json.loads((tmp_path / "part" / REPORT_FILE).read_text())
    assert report["one"]["written"] == len(kept)


def test_common_phrases_leave_validation_instead_of_training(
    recipe: Recipe, tmp_path: Path
) -> None:
    corpus = recipe.data.train[0]
    letters = "abcdefghijklm"
    write(corpus.source, [f"{c} So many thanks for all the kind words." for c in letters])
    write(corpus.target, [f"{c} Vielen Dank für die netten Worte." for c in letters])
    write(recipe.data.valid[0].source, ["Many thanks for all the kind words.", "They left early."])
    write(recipe.data.valid[0].target, ["Vielen Dank.", "Sie gingen früh."])
    output = tmp_path / "prepared"
    prepare(recipe, output, [], seed=1)
    assert read_lines(output / "one" / "valid.en") == ["They left early."]
    report = json.loads((output / REPORT_FILE).read_text())
    assert report["one"]["kept"] == len(letters)
    assert report["one (validation)"] == {"pairs": 1}

"""The quality tables: models side by side, without twins, robustness and paragraphs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bench.quality import only, paragraph_runs, robustness_table, table, translator
from model.data.twins import lines_by_set, lines_without_twins, main
from model.evaluation.evaluation import translate_sentences
from model.evaluation.scoring import TestSet, score_translations
from tests.factories import SENTENCES, random_model, tiny_bundle, tiny_config


def test_models_stand_side_by_side() -> None:
    references = ["der Hund rennt heute", "die Katze schläft jetzt"]
    good = score_translations(references, references)
    bad = score_translations(["x", "y"], references)
    lines = table({"a": {"one": good, "two": bad}}, {"a": 3})
    assert lines[0].endswith("| BLEU, one | chrF2, one | BLEU, two | chrF2, two |")
    assert lines[2].startswith("| a | 2 | 3 | 100.0 | 100.0 | ")
    assert table({"a": {"one": good}}, {"a": 0})[0].endswith("| BLEU | chrF2 |")


def test_only_the_kept_lines_are_scored() -> None:
    test_set = TestSet(["a", "b", "c"], ["x", "y", "z"])
    assert only(test_set, [0, 2]) == TestSet(["a", "c"], ["x", "z"])
    assert only(test_set, None) is test_set


def test_a_model_that_copies_keeps_everything_and_one_that_drops_keeps_nothing() -> None:
    lines = robustness_table(
        {"copies": list, "drops": lambda texts: ["so ist es nun."] * len(texts)}
    )
    rows = lines[3:]
    assert len(rows) == 8
    assert all(row.endswith("| 100 % | 0 % |") for row in rows), rows


def test_a_model_translates_in_a_process_of_its_own(tmp_path: Path) -> None:
    model = random_model(tiny_config())
    bundle = tiny_bundle(tmp_path / "bundle", model=model)
    sources = [SENTENCES[0], "", SENTENCES[1], "a\u2028b"]
    expected = translate_sentences(model, bundle.tokenizer(), sources)
    found = translator(bundle.path, beam_size=1, threads=1)(sources)
    assert found == [" ".join(text.splitlines()) for text in expected]
    with pytest.raises(typer.Exit):
        translator(tmp_path, beam_size=1, threads=1)(sources)


def test_paragraphs_have_one_to_two_hundred_tokens() -> None:
    assert paragraph_runs([60, 30, 20, 150, 90, 120, 300, 10]) == [
        range(0, 3),
        range(3, 4),
        range(5, 6),
    ]


def test_lines_with_a_near_twin_anywhere_in_training_are_left_out(tmp_path: Path) -> None:
    train = [("She reads 3 books.", "Sie liest 3 Bücher."), ("Go home!", "Geh heim!")]
    tests = [("She reads 5 books!", "Sie liest fünf."), ("It rains.", "Es regnet.")]
    assert lines_without_twins(train, tests) == [1]
    assert lines_by_set(train, {"a": tests, "b": [], "c": [*tests[1:], *tests]}) == {
        "a": [1],
        "b": [],
        "c": [0, 2],
    }
    for name, pairs in (("train", train), ("valid", tests)):
        for suffix, side in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            (tmp_path / f"{name}.{suffix}").write_text("".join(f"{line}\n" for line in side))
    recipe, output = "model/recipes/small-corpus.toml", tmp_path / "kept.json"
    app = typer.Typer()
    app.command()(main)
    files = f"other={tmp_path}/train.en,{tmp_path}/train.de"
    arguments = [recipe, "--data-root", str(tmp_path), "--output", str(output), "--test", files]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    (name,) = set(json.loads(output.read_text())) - {"other"}
    assert json.loads(output.read_text()) == {name: [1], "other": []}
    assert CliRunner().invoke(app, [*arguments[:-1], "other=x"]).exit_code == 2


@pytest.mark.parametrize("number", ["7", "42"])
def test_a_number_inside_another_one_is_not_kept(number: str) -> None:
    from model.data.robust_inputs import RobustInput

    one = RobustInput("numbers", f"The value is {number}.", number)
    assert one.is_kept(f"Der Wert ist {number}.")
    assert not one.is_kept(f"Der Wert ist 1{number}.")

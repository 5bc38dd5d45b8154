"""Sentinels for words that are linked: both sides have the same ones, and nothing else changes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from model.bundle.tokenizer import sentinel
from model.data.corpus import read_lines
from model.data.linked_sentinels import main, with_linked_sentinels
from model.data.word_alignment import word_spans
from tests.unit.model.data.two_corpora import TWO_CORPORA

ONE, TWO = sentinel(1), sentinel(2)


def changed(source: str, target: str, alignment: str, seed: int = 0) -> tuple[str, str] | None:
    return with_linked_sentinels((source, target), alignment, random.Random(seed), 12)


def test_a_noun_and_its_translation_become_one_sentinel() -> None:
    found = changed("I see the dog.", "Ich sehe den Hund.", "0-0 1-1 2-2 3-3 4-4")
    assert found == (f"I see the {ONE}.", f"Ich sehe den {ONE}.")


def test_sentinels_are_numbered_in_the_order_of_the_source() -> None:
    pair = ("The cat sees dogs.", "Doch Hunde sieht die Katze.")
    found = {changed(*pair, "0-3 1-4 2-2 3-1 4-5", seed) for seed in range(50)}
    assert found == {
        (f"The {ONE} sees dogs.", f"Doch Hunde sieht die {ONE}."),
        (f"The cat sees {ONE}.", f"Doch {ONE} sieht die Katze."),
        (f"The {ONE} sees {TWO}.", f"Doch {TWO} sieht die {ONE}."),
    }


@pytest.mark.parametrize(
    ("source", "target", "alignment"),
    [
        ("The train station burns.", "Der Bahnhof brennt.", "0-0 2-1 3-2 4-3"),  # "train" is left
        ("Coffee beans grow.", "Kaffeebohnen wachsen.", "0-0 1-0 2-1 3-2"),  # two for one
        ("He runs.", "Er rennt.", "0-0 1-1 2-2"),  # nothing with a capital and three letters
        ("Room 101x", "Raum 101x", "1-1"),  # no word
        ("The first.", "Das erste.", "0-0 1-1 2-2"),  # capitals at the beginning only
        ("Dogs bark.", "Dann bellen Hunde.", ""),
    ],
)
def test_what_is_not_surely_one_noun_stays(source: str, target: str, alignment: str) -> None:
    assert {changed(source, target, alignment, seed) for seed in range(20)} == {None}


WORDS = st.lists(st.sampled_from(["Haus", "Hunde", "the", "a", "läuft", ",", "12"]), max_size=12)


@given(WORDS, WORDS, st.data())
def test_sides_have_the_same_sentinels_and_as_many_words(
    sources: list[str], targets: list[str], data: st.DataObject
) -> None:
    links = st.tuples(*(st.integers(0, max(0, len(side) - 1)) for side in (sources, targets)))
    drawn = data.draw(st.lists(links, max_size=12)) if sources and targets else []
    pair = " ".join(sources), " ".join(targets)
    found = changed(*pair, " ".join(f"{s}-{t}" for s, t in drawn), data.draw(st.integers(0, 99)))
    if found is None:
        return
    private = [sorted(c for c in side if "\ue000" < c < "\ue100") for side in found]
    assert private[0] == private[1] == [sentinel(n + 1) for n in range(len(private[0]))]
    for before, after in zip(pair, found, strict=True):
        assert len(word_spans(before)) == len(word_spans(after))


def test_a_corpus_of_a_recipe_s_pairs_is_written_with_its_alignments(tmp_path: Path) -> None:
    vocabulary = "[vocabulary]\nsentinels = 2\n"
    (tmp_path / "recipe.toml").write_text(TWO_CORPORA + vocabulary, encoding="utf-8")
    texts = {
        "one": ("The dog.\nIt runs.\n", "Der Hund.\nEr rennt.\n", "0-0 1-1 2-2\n0-0 1-1 2-2\n"),
        "two": ("The cat.\n", "Die Katze.\n", "0-0 1-1 2-2\n"),
    }
    for name, sides in texts.items():
        (tmp_path / name).mkdir()
        for file, side in zip(("train.en", "train.de", "train.align"), sides, strict=True):
            (tmp_path / name / file).write_text(side, encoding="utf-8")
    output = tmp_path / "sentinels"
    main(tmp_path / "recipe.toml", tmp_path, output, share=1.0)
    found = [read_lines(output / file) for file in ("train.en", "train.de", "train.align")]
    links = ["0-0 1-1 2-2"] * 2
    assert found == [[f"The {ONE}."] * 2, [f"Der {ONE}.", f"Die {ONE}."], links]
    main(tmp_path / "recipe.toml", tmp_path, output, corpus=["two"], share=1.0)
    assert read_lines(output / "train.de") == [f"Die {ONE}."]
    with pytest.raises(typer.BadParameter, match="three"):
        main(tmp_path / "recipe.toml", tmp_path, output, corpus=["three"])
    (tmp_path / "recipe.toml").write_text(TWO_CORPORA, encoding="utf-8")
    with pytest.raises(typer.BadParameter, match="sentinels is 0"):
        main(tmp_path / "recipe.toml", tmp_path, output)

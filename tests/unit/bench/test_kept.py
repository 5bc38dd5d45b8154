"""`bench.kept`: sentences in several languages, and any bundle."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bench import kept
from bench.kept_sentences import KINDS, LANGUAGES, Pair, kinds_for, sample_sentence
from tests.factories import tiny_bundle

CONVERTED = {"time", "range of times", "number in words", "time in words", "date", "numero"}


@pytest.mark.parametrize("source", LANGUAGES)
def test_a_copy_is_right_but_for_what_is_converted(source: str) -> None:
    rng = random.Random(1)
    for target in ("de", "en", "fr", "pl"):
        pair = Pair(source, target)
        for kind in kinds_for(pair):
            if kind in CONVERTED or kind == "number":
                continue
            sample = sample_sentence(rng, kind, pair)
            while any(thing.kind == "number" for thing in sample.things):
                sample = sample_sentence(rng, kind, pair)
            assert sample.is_right(sample.text), (pair, sample)
            assert not sample.is_right(sample.text.replace(sample.things[0].text, "x"))


def test_numbers_have_the_separators_of_their_languages() -> None:
    rng = random.Random(2)
    for source, target, separator in (("en", "de", ","), ("de", "en", "."), ("de", "fr", ".")):
        pair = Pair(source, target)
        samples = [sample_sentence(rng, "number", pair) for _ in range(200)]
        large = [s for s in samples if f"{separator}00" in s.things[0].text]
        for sample in large:
            is_same = sample.is_right(sample.text)
            assert is_same is ((source == "en") is (target == "en")), sample


def test_other_source_languages_are_refused() -> None:
    with pytest.raises(ValueError, match="sentences in en, de, fr, es, but none in cs"):
        kinds_for(Pair.of("cs-CZ", "de"))
    assert len(kinds_for(Pair.of("en-GB", "pl"))) == len(KINDS)


def test_the_report_of_a_bundle_given_by_path(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle")
    app = typer.Typer()
    app.command()(kept.main)
    result = CliRunner().invoke(app, [str(bundle.path), "--sentences", "4"])
    assert result.exit_code == 0, result.output
    assert "| all | 4 |" in result.output
    refused = CliRunner().invoke(app, [str(bundle.path), "--languages", "en,fr"])
    assert refused.exit_code == 2
    assert "fr" in refused.output

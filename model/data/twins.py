"""Finds the lines of test sets without a near twin in the training text.

    python -m model.data.twins RECIPE --data-root PREPARED --output kept.json
        [--test NAME=SOURCE,REFERENCE]...

A sentence with a near twin in the training text makes a model look better than it is. Twins are
found as `prepare_corpus` finds them (`cleaning.near_twins`), but in all training corpora: numbers,
case, punctuation and names aside, the same source, the same target, or sources whose character
4-grams overlap by half. The file maps each test set, the recipe's validation sets among them, to
the numbers of the lines to keep, from 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from model.data.cleaning import Pair, near_twins
from model.data.corpus import read_lines
from model.data.recipe import load_recipe


def lines_without_twins(train: Sequence[Pair], test: Sequence[Pair]) -> list[int]:
    """Numbers of the test pairs, from 0, without a near twin among the training pairs."""
    twins = {index for found in near_twins(train, test).values() for index in found}
    return [index for index in range(len(test)) if index not in twins]


def lines_by_set(
    train: Sequence[Pair], tests: Mapping[str, Sequence[Pair]]
) -> dict[str, list[int]]:
    """`lines_without_twins` of every test set, in one pass over the training text.

    The text to go through is long; a pass for each of a dozen sets takes a quarter of an hour.
    """
    together = [pair for pairs in tests.values() for pair in pairs]
    kept = lines_without_twins(train, together)
    found, start = {}, 0
    for name, pairs in tests.items():
        end = start + len(pairs)
        found[name] = [index - start for index in kept if start <= index < end]
        start = end
    return found


def _pairs(source: Path, target: Path) -> list[Pair]:
    return list(zip(read_lines(source), read_lines(target), strict=True))


def main(
    recipe: Annotated[Path, typer.Argument(help="The recipe that a model was trained by.")],
    data_root: Annotated[Path, typer.Option(help="Its corpora, as trained on.")],
    output: Annotated[Path, typer.Option(help="The file to write.")],
    test: Annotated[
        list[str] | None,
        typer.Option(help="Another test set, NAME=SOURCE,REFERENCE; may be repeated."),
    ] = None,
) -> None:
    """Write the numbers of the lines of test sets without a near twin in the training text."""
    data = load_recipe(recipe, data_root=data_root).data
    train = [pair for corpus in data.train for pair in _pairs(corpus.source, corpus.target)]
    tests = {corpus.name: (corpus.source, corpus.target) for corpus in data.valid}
    tests |= parse_tests(test or [])
    pairs = {name: _pairs(*files) for name, files in tests.items()}
    kept = lines_by_set(train, pairs)
    for name, lines in kept.items():
        typer.echo(f"{name}: {len(lines)} of {len(pairs[name])} lines have no near twin")
    output.write_text(json.dumps(kept) + "\n", encoding="utf-8")


def parse_tests(tests: Sequence[str]) -> dict[str, tuple[Path, Path]]:
    """Test sets by name, from NAME=SOURCE,REFERENCE.

    Raises:
        typer.BadParameter: one has another form.
    """
    found = {}
    for text in tests:
        name, _, files = text.partition("=")
        source, comma, reference = files.partition(",")
        if not (name and source and comma and reference):
            raise typer.BadParameter(f"--test takes NAME=SOURCE,REFERENCE, not {text!r}")
        found[name] = (Path(source), Path(reference))
    return found


if __name__ == "__main__":
    typer.run(main)

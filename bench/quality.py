"""The quality table of README and model card: a line for each validation corpus of a recipe.

For the model that ships, with the folder of its corpora as DRAGOMAN_DATA_ROOT:

    python -m bench.quality --model model/pretrained/en-de --recipe model/recipes/en-de-small.toml
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.suite.systems import environment

if TYPE_CHECKING:
    from model.recipe import Recipe
    from model.scoring import Report


def main(
    model: Annotated[Path, typer.Option(help="A bundle or a checkpoint.")],
    recipe: Annotated[Path, typer.Option(help="The recipe that it was trained by.")],
    data_root: Annotated[
        Path | None,
        typer.Option(help="Where the recipe's files are.", envvar="DRAGOMAN_DATA_ROOT"),
    ] = None,
    beam_size: Annotated[int, typer.Option(min=1)] = 1,
    threads: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Score a model on every validation corpus and print the result as a Markdown table."""
    from model.recipe import load_recipe
    from model.scoring import TestSet, score_translations

    loaded = load_recipe(recipe, data_root=data_root)
    reports = {}
    with tempfile.TemporaryDirectory() as directory:
        for corpus in loaded.data.valid:
            output = Path(directory) / corpus.name
            command = ["-m", "cli.main", "evaluate", "--model", str(model), "--output", str(output)]
            command += ["--source", str(corpus.source), "--reference", str(corpus.target)]
            command += ["--beam-size", str(beam_size), "--threads", str(threads)]
            done = subprocess.run(
                [sys.executable, *command],
                env=environment(),
                stdout=subprocess.DEVNULL,
                check=False,
            )
            if done.returncode:
                raise typer.Exit(done.returncode)
            translations = output.read_text(encoding="utf-8").split("\n")[:-1]
            references = TestSet.read(corpus.source, corpus.target).references
            reports[corpus.name] = score_translations(translations, references)
    for line in table(reports, sources_in_training(loaded)):
        typer.echo(line)


def sources_in_training(recipe: Recipe) -> dict[str, int]:
    """For each validation corpus, its source sentences that training would see without a filter."""
    from model.corpus import read_lines

    seen = {line for corpus in recipe.data.train for line in read_lines(corpus.source)}
    return {
        corpus.name: sum(line in seen for line in read_lines(corpus.source))
        for corpus in recipe.data.valid
    }


def table(reports: dict[str, Report], overlap: dict[str, int]) -> list[str]:
    """Markdown lines; the signatures, the same for every row, stand below."""
    lines = [
        "| validation set | sentences | of them also in the training files | BLEU | chrF2 |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, report in reports.items():
        lines.append(
            f"| {name} | {report.num_sentences:,} | {overlap[name]:,} "
            f"| {report.bleu.score:.1f} | {report.chrf.score:.1f} |"
        )
    first = next(iter(reports.values()))
    return [*lines, "", f"BLEU `{first.bleu.signature}`, chrF2 `{first.chrf.signature}`"]


if __name__ == "__main__":
    typer.run(main)

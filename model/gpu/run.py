"""A teacher, back-translation and students on one large GPU, within minutes.

    python -m model.gpu.run pack-pairs RECIPE --data-root PREPARED --init START \
        [--test NAME=SOURCES,REFERENCES]... --output PAIRS
    python -m model.gpu.run pack-text WEIGHT:FILE... --init START --output TEXT
    python -m model.gpu.run train PLAN --pairs PAIRS --text TEXT --init START --work WORK
    python -m model.training.packed_training join WORK/forward-pieces --output STUDENT

`train` runs on the GPU, or slowly on a CPU. A training that has ended is not repeated: the same
command goes on.

1. A teacher learns both directions from the pairs; the first token of a source says which (Johnson
   et al., 2017, "Google's Multilingual Neural Machine Translation System", section 3).
2. It translates text in the target language: back-translation (Sennrich et al., 2016, "Improving
   Neural Machine Translation Models with Monolingual Data", section 3.2).
3. A student learns from the pairs and the back-translations.
4. A student of the other direction learns from the pairs.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Annotated

import typer

from model.data.corpus import ParallelText, read_lines
from model.data.recipe import load_recipe
from model.gpu.packs import write_pairs, write_text
from model.gpu.plan import load_plan
from model.gpu.stages import Stages
from model.network.checkpoint import load_checkpoint

logger = logging.getLogger(__name__)
app = typer.Typer(help="Train a teacher and students on one GPU within minutes.")

Init = Annotated[Path, typer.Option(help="The checkpoint that students start from.")]
Output = Annotated[Path, typer.Option(help="The folder to write.")]


@app.command()
def pack_pairs(
    recipe: Annotated[Path, typer.Argument(help="The recipe whose corpora to pack.")],
    data_root: Annotated[Path, typer.Option(help="The prepared corpora.")],
    init: Init,
    output: Output,
    test: Annotated[
        list[str] | None, typer.Option(help="A test set: NAME=SOURCES,REFERENCES.")
    ] = None,
) -> None:
    """Pack the corpora of a recipe as token ids, and test sets."""
    corpora = []
    for corpus in load_recipe(recipe, data_root=data_root).data.train:
        sides = read_lines(corpus.source), read_lines(corpus.target)
        corpora.append((corpus.name, corpus.weight, _checked(corpus.name, *sides)))
    tests = {}
    for one in test or ():
        name, _, files = one.partition("=")
        sources, _, references = files.partition(",")
        text = _checked(name, read_lines(Path(sources)), read_lines(Path(references)))
        tests[name] = list(text.sources), list(text.targets)
    count = write_pairs(output, load_checkpoint(init).tokenizer, corpora, tests)
    typer.echo(f"{output}: {sum(len(text) for *_, text in corpora)} pairs in {count} pieces")


def _checked(name: str, sources: list[str], targets: list[str]) -> ParallelText:
    if len(sources) != len(targets):
        raise typer.BadParameter(f"{name} has {len(sources)} sources, {len(targets)} targets")
    return ParallelText(sources, targets)


@app.command()
def pack_text(
    files: Annotated[list[str], typer.Argument(help="WEIGHT:FILE, in the target language.")],
    init: Init,
    output: Output,
) -> None:
    """Pack sentences to back-translate, one a line."""
    texts = []
    for one in files:
        weight, _, file = one.partition(":")
        texts.append((Path(file).stem, float(weight), read_lines(Path(file))))
    count = write_text(output, load_checkpoint(init).tokenizer, texts)
    typer.echo(f"{output}: {sum(len(lines) for *_, lines in texts)} sentences in {count} pieces")


@app.command("train")
def train_all(
    plan: Annotated[Path, typer.Argument(help="The plan, in TOML.")],
    pairs: Annotated[Path, typer.Option(help="The pieces of `pack-pairs`.")],
    text: Annotated[Path, typer.Option(help="The pieces of `pack-text`.")],
    init: Init,
    work: Annotated[Path, typer.Option(help="A folder that stays between two calls.")],
) -> None:
    """Run all stages that have not ended yet."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    work.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    Stages(load_plan(plan), work, init, pairs, text).run()
    logger.info("finished after %.0f s", time.monotonic() - began)


if __name__ == "__main__":
    app()

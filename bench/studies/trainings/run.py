"""Trains the variants of a plan one after another, and compares them in a table.

    python -m bench.studies.trainings.run bench/studies/trainings/plans/positions.toml \
        --data-root PREPARED --output FOLDER

Each variant is a `dragoman train` of its own at the lowest priority, with its recipe and its run in
FOLDER/PLAN/VARIANT. After an interruption (SIGTERM, or a reboot), the same command resumes; a file
named `pause` in a variant's `run` holds it. After each variant, the plan's report in
FOLDER/reports/PLAN is written anew.
"""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from bench.machine import machine
from bench.recompute import store
from bench.studies.trainings.plan import (
    TrainingPlan,
    TrainingPlanError,
    TrainingVariant,
    load_plan,
    to_toml,
)
from bench.studies.trainings.report import to_dict
from bench.suite.systems import environment
from model.data.recipe import Recipe, load_recipe
from model.training.signals import on_stop_signal

RESULT_FILE = "result.json"
Train = Callable[[Path, Path, Path], None]  # recipe, data root, run
_TRIED = 10  # sentences, where a plan is only tried out


@dataclass(frozen=True)
class ScoredText:
    """A text to translate and to score.

    Attributes:
        documents: corpora with valid.doc.
        limit: sentences that are scored of each corpus; None for all.
    """

    data_root: Path
    documents: tuple[Path, ...] = ()
    limit: int | None = None


def main(
    plan: Annotated[Path, typer.Argument(help="The plan, a TOML file.")],
    data_root: Annotated[Path, typer.Option(help="The prepared corpora.")],
    output: Annotated[Path, typer.Option(help="Folder of all plans' runs and reports.")],
    documents: Annotated[
        list[Path] | None,
        typer.Option(help="A corpus with valid.doc, to translate whole; may be repeated."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Variants; default: all.")] = None,
    updates: Annotated[
        int | None, typer.Option(min=2, help="Instead of the plan's, to try it out.")
    ] = None,
    sentences: Annotated[
        int | None, typer.Option(min=1, help="Scored of each corpus; default: all.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each training.")] = 1,
    nice: Annotated[int, typer.Option(min=0, max=19, help="Priority; 19 is the lowest.")] = 19,
) -> None:
    """Train the remaining variants of a plan, and write its report."""
    try:
        loaded = load_plan(plan, updates)
    except TrainingPlanError as exc:
        raise typer.BadParameter(str(exc), param_hint="PLAN") from exc
    names = [variant.name for variant in loaded.variants]
    for name in only or ():
        if name not in names:
            raise typer.BadParameter(
                f"{name!r} is not one of {', '.join(names)}", param_hint="--only"
            )
    if loaded.document_tokens and not documents:
        raise typer.BadParameter("this plan translates documents", param_hint="--documents")
    os.nice(nice)
    folder = output / loaded.name
    command = f"python -m bench.studies.trainings.run {plan.name}"
    for number, variant in enumerate(loaded.variants, start=1):
        if not only or variant.name in only:
            typer.echo(f"{number} of {len(names)}: {variant.name}")
            limit = _TRIED if updates else sentences
            inputs = ScoredText(data_root, tuple(documents or ()), limit)
            train = functools.partial(train_by_command, threads=threads)
            run_variant(loaded, variant, folder, inputs, train)
            about = {"Command": command, **machine(threads)}
            done = to_dict(loaded, results(loaded, folder), about)
            store(output / "reports" / loaded.name, done)
    typer.echo(f"{output / 'reports' / loaded.name / 'report.md'}")


def run_variant(
    plan: TrainingPlan,
    variant: TrainingVariant,
    folder: Path,
    text: ScoredText,
    train: Train,
) -> None:
    """Train and score a variant, unless the same one is done: its folder becomes complete.

    Args:
        folder: the plan's folder.
        train: writes `final` into the folder of a run.
    """
    own = folder / variant.name
    own.mkdir(parents=True, exist_ok=True)
    recipe = own / "recipe.toml"
    written = to_toml(_with_subset(variant, own, text.data_root))
    if recipe.exists() and recipe.read_text(encoding="utf-8") == written:
        if (own / RESULT_FILE).exists():
            return
    else:
        (own / RESULT_FILE).unlink(missing_ok=True)
        recipe.write_text(written, encoding="utf-8")
    train(recipe, text.data_root, own / "run")
    result = score(own / "run" / "final", recipe, text, plan.document_tokens)
    partial = own / f"{RESULT_FILE}.partial"
    partial.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    partial.replace(own / RESULT_FILE)


def results(plan: TrainingPlan, folder: Path) -> dict[str, dict[str, Any]]:
    """Results so far, by variant, in the order of the plan, with the validation losses.

    Also the CPU seconds of the training until then, where the run counted them.
    """
    from model.training.report import training_curve

    found = {}
    for variant in plan.variants:
        own = folder / variant.name
        if (own / RESULT_FILE).exists():
            result = json.loads((own / RESULT_FILE).read_text(encoding="utf-8"))
            history = json.loads((own / "run" / "report.json").read_text(encoding="utf-8"))
            losses = {str(each["update"]): each["loss"] for each in history["validations"]}
            curve = training_curve(own / "run", "train/cpu_seconds")
            seconds = {str(int(update)): round(value, 1) for update, value in curve}
            times = {update: seconds[update] for update in losses if update in seconds}
            found[variant.name] = {**result, "losses": losses, "cpu_seconds": times}
    return found


def score(checkpoint: Path, recipe: Path, text: ScoredText, most: int) -> dict[str, Any]:
    """BLEU of a checkpoint on its recipe's validation text and on documents, and the time taken."""
    import torch

    from bench.studies.trainings.documents import TestDocuments, document_scores
    from model.evaluation.evaluation import translate_sentences
    from model.evaluation.scoring import TestSet, score_translations
    from model.network.checkpoint import load_checkpoint

    torch.set_num_threads(1)
    loaded = load_checkpoint(checkpoint)
    written = load_recipe(recipe, data_root=text.data_root)

    def translate(texts: Sequence[str]) -> list[str]:
        return translate_sentences(loaded.model, loaded.tokenizer, texts)

    def count(text: str) -> int:
        return len(loaded.tokenizer.encode(text))

    found: dict[str, Any] = {"bleu": {}, "documents": {}, **loaded.provenance}
    found["parameters"] = loaded.model.num_parameters()
    num_tokens = num_characters = 0
    for corpus in written.data.valid:
        test = TestSet.read(corpus.source, corpus.target)
        sources, references = test.sources[: text.limit], test.references[: text.limit]
        scores = score_translations(translate(sources), references)
        found["bleu"][corpus.name] = scores.bleu.score
        num_tokens += sum(count(reference) + 1 for reference in references)  # with EOS
        num_characters += sum(map(len, references))
    found["tokens_per_character"] = num_tokens / num_characters
    languages = (written.languages.source, written.languages.target)
    for folder in text.documents if most else ():
        documents = TestDocuments.read(folder, *languages, limit=text.limit)
        found["documents"][folder.name] = document_scores(documents, translate, count, most - 1)
    return found


def train_by_command(recipe: Path, data_root: Path, run: Path, *, threads: int) -> None:
    """`dragoman train`, with SIGTERM and SIGINT passed on to it.

    Raises:
        typer.Exit: it failed or was interrupted.
    """
    command = [sys.executable, "-m", "cli.main", "train", str(recipe), "--device", "cpu"]
    command += ["--data-root", str(data_root), "--output", str(run), "--threads", str(threads)]
    log = run.parent / "train.log"
    variables = {**environment(), "OMP_NUM_THREADS": str(threads)}
    with log.open("a", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=variables)

        def forward(number: int, frame: FrameType | None) -> None:
            process.terminate()  # it saves its state first

        with on_stop_signal(forward):
            code = process.wait()
    if code:
        typer.echo(f"the training ended with {code}: {log}; the same command resumes", err=True)
        raise typer.Exit(code if code > 0 else 1)


def _with_subset(variant: TrainingVariant, own: Path, data_root: Path) -> dict[str, Any]:
    """The variant's recipe, with files of its own where it takes a part of the pairs."""
    recipe = dict(variant.recipe)
    if variant.pairs is None:
        return recipe
    corpora = Recipe.model_validate(recipe).data.train
    sides = []
    for side in ("source", "target"):
        files = (data_root / getattr(corpus, side) for corpus in corpora)
        sides.append([line for f in files for line in f.read_text("utf-8").split("\n")[:-1]])
    pairs = list(zip(*sides, strict=True))
    # The same order for every number of pairs: a larger part holds the smaller ones.
    random.Random(1).shuffle(pairs)
    if variant.pairs > len(pairs):
        raise typer.BadParameter(
            f"variants.{variant.name}: pairs is {variant.pairs:,}, but there are {len(pairs):,}",
            param_hint="PLAN",
        )
    subset = {"name": "subset"}
    columns = zip(*pairs[: variant.pairs], strict=True)
    for side, lines in zip(("source", "target"), columns, strict=True):
        file = (own / f"train.{side}").resolve()
        content = "".join(f"{line}\n" for line in lines)
        if not file.exists() or file.read_text(encoding="utf-8") != content:
            file.write_text(content, encoding="utf-8")
        subset[side] = str(file)
    recipe["data"] = {**recipe["data"], "train": [subset]}
    return recipe


if __name__ == "__main__":
    typer.run(main)

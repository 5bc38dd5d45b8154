"""The quality tables of README and model card.

One line a test set, one pair of columns a model. For the model that ships, with the folder of its
corpora as DRAGOMAN_DATA_ROOT:

    python -m bench.quality --model model/pretrained/en-de \
        --recipe model/checkpoints/en-de/recipe.toml

int8 beside fp32, other test sets, lines without near twins in the training text, and robustness:

    python -m bench.quality --model FP32 --model INT8 --recipe model/checkpoints/en-de/recipe.toml \
        --test newstest2013=newstest2013.en,newstest2013.de --kept kept.json --robust \
        --paragraphs newstest2013
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.server_process import environment

if TYPE_CHECKING:
    from model.data.recipe import Recipe
    from model.evaluation.scoring import Report, TestSet

Translate = Callable[[Sequence[str]], list[str]]
_PARAGRAPH_TOKENS = (100, 200)


def main(
    model: Annotated[list[Path], typer.Option(help="A bundle or a checkpoint; may be repeated.")],
    recipe: Annotated[Path, typer.Option(help="The recipe that they were trained by.")],
    data_root: Annotated[
        Path | None,
        typer.Option(help="Folder of the recipe's files.", envvar="DRAGOMAN_DATA_ROOT"),
    ] = None,
    test: Annotated[
        list[str] | None,
        typer.Option(help="Another test set, NAME=SOURCE,REFERENCE; may be repeated."),
    ] = None,
    kept: Annotated[
        Path | None,
        typer.Option(
            help="Lines to score of each set, a file that `python -m model.data.twins` wrote."
        ),
    ] = None,
    robust: Annotated[bool, typer.Option(help="Also what comes back verbatim.")] = False,
    paragraphs: Annotated[
        str | None,
        typer.Option(help="Also paragraphs of this test set, whole and sentence by sentence."),
    ] = None,
    beam_size: Annotated[int, typer.Option(min=1)] = 1,
    threads: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Score models on the validation corpora of a recipe, and print Markdown tables."""
    from model.data.recipe import load_recipe
    from model.data.twins import parse_tests
    from model.evaluation.scoring import TestSet, score_translations

    loaded = load_recipe(recipe, data_root=data_root)
    files = {corpus.name: (corpus.source, corpus.target) for corpus in loaded.data.valid}
    files |= parse_tests(test or [])
    lines = json.loads(kept.read_text(encoding="utf-8")) if kept else {}
    tests = {name: only(TestSet.read(*pair), lines.get(name)) for name, pair in files.items()}

    translators = {str(path): translator(path, beam_size, threads) for path in model}
    reports = {
        name: {
            path: score_translations(translate(test_set.sources), test_set.references)
            for path, translate in translators.items()
        }
        for name, test_set in tests.items()
    }
    output = table(reports, sources_in_training(loaded, tests))
    if robust:
        output += robustness_table(translators)
    if paragraphs is not None:
        for path, translate in translators.items():
            output += paragraph_lines(Path(path), translate, tests[paragraphs])
    for line in output:
        typer.echo(line)


def translator(model: Path, beam_size: int, threads: int) -> Translate:
    """A function that translates with `model` by `dragoman evaluate`, one process a call."""

    def translate(sentences: Sequence[str]) -> list[str]:
        with tempfile.TemporaryDirectory() as directory:
            source, output = Path(directory) / "source", Path(directory) / "output"
            source.write_text("".join(f"{line}\n" for line in sentences), encoding="utf-8")
            command = ["-m", "cli.main", "evaluate", "--model", str(model), "--output", str(output)]
            # evaluate wants a reference; its scores are not used.
            command += ["--source", str(source), "--reference", str(source)]
            command += ["--beam-size", str(beam_size), "--threads", str(threads)]
            done = subprocess.run(
                [sys.executable, *command],
                env=environment(),
                stdout=subprocess.DEVNULL,
                check=False,
            )
            if done.returncode:
                raise typer.Exit(done.returncode)
            return output.read_text(encoding="utf-8").split("\n")[:-1]

    return translate


def only(test_set: TestSet, lines: Sequence[int] | None) -> TestSet:
    """The lines of a test set with these numbers, from 0; all of them without numbers."""
    from model.evaluation.scoring import TestSet

    if lines is None:
        return test_set
    return TestSet([test_set.sources[i] for i in lines], [test_set.references[i] for i in lines])


def sources_in_training(recipe: Recipe, tests: Mapping[str, TestSet]) -> dict[str, int]:
    """The source sentences of each test set that training would see without a filter."""
    from model.data.corpus import read_lines

    seen = {line for corpus in recipe.data.train for line in read_lines(corpus.source)}
    return {name: sum(line in seen for line in test.sources) for name, test in tests.items()}


def table(reports: Mapping[str, Mapping[str, Report]], overlap: Mapping[str, int]) -> list[str]:
    """Markdown lines; the signatures, the same for every row, stand below.

    Args:
        overlap: sentences of each test set that are also in the training files.
    """
    models = list(next(iter(reports.values())))
    # A single model needs no name.
    heads = [""] if len(models) == 1 else [f", {model}" for model in models]
    columns = "".join(f" BLEU{head} | chrF2{head} |" for head in heads)
    lines = [
        f"| test set | sentences | of them also in the training files |{columns}",
        "| --- | ---: | ---: |" + " ---: | ---: |" * len(models),
    ]
    for name, by_model in reports.items():
        first = by_model[models[0]]
        scores = "".join(f" {r.bleu.score:.1f} | {r.chrf.score:.1f} |" for r in by_model.values())
        lines.append(f"| {name} | {first.num_sentences:,} | {overlap[name]:,} |{scores}")
    return [*lines, "", f"BLEU `{first.bleu.signature}`, chrF2 `{first.chrf.signature}`"]


def robustness_table(translators: Mapping[str, Translate]) -> list[str]:
    """Markdown lines: of each kind of text, the share that each model keeps as it should."""
    from model.data.robust_inputs import kept_shares, robust_inputs

    inputs = robust_inputs()
    shares = [
        kept_shares(inputs, translate([one.text for one in inputs]))
        for translate in translators.values()
    ]
    lines = [
        "",
        "| kept | texts | " + " | ".join(translators) + " |",
        "| --- | ---: |" + " ---: |" * len(shares),
    ]
    for kind, (_, total) in shares[0].items():
        percents = " | ".join(f"{100 * share[kind][0] / total:.0f} %" for share in shares)
        lines.append(f"| {kind} | {total} | {percents} |")
    return lines


def paragraph_lines(model: Path, translate: Translate, test_set: TestSet) -> list[str]:
    """One line: chrF2 of paragraphs that are translated whole, and sentence by sentence.

    Args:
        model: bundle with the tokenizer that counts tokens.
        test_set: sentences in document order.
    """
    from model.bundle.tokenizer import TOKENIZER_FILE, Tokenizer
    from model.evaluation.scoring import score_translations

    tokenizer = Tokenizer.load(model / TOKENIZER_FILE)
    lengths = [len(ids) for ids in tokenizer.encode_batch(test_set.sources)]
    runs = paragraph_runs(lengths)

    def joined(sentences: Sequence[str]) -> list[str]:
        return [" ".join(sentences[run.start : run.stop]) for run in runs]

    references = joined(test_set.references)
    whole = translate(joined(test_set.sources))
    apart = joined(translate(test_set.sources))
    scores = [score_translations(found, references).chrf.score for found in (whole, apart)]
    least, most = _PARAGRAPH_TOKENS
    return [
        "",
        f"{model}: {len(runs)} paragraphs of {least} to {most} tokens: chrF2 {scores[0]:.1f} in "
        f"one piece, {scores[1]:.1f} sentence by sentence",
    ]


def paragraph_runs(lengths: Sequence[int]) -> list[range]:
    """Runs of sentences that have 100 to 200 tokens together, in order, none in two runs."""
    least, most = _PARAGRAPH_TOKENS
    runs, start, size = [], 0, 0
    for index, length in enumerate(lengths):
        if size + length > most:
            start, size = index, 0
        size += length
        if least <= size <= most:
            runs.append(range(start, index + 1))
            start, size = index + 1, 0
    return runs


if __name__ == "__main__":
    typer.run(main)

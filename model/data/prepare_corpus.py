"""Prepares raw corpora for a recipe: cleans them, removes near twins, adds variety.

    python -m model.data.prepare_corpus RECIPE [HELD_OUT]... --data-root RAW --output PREPARED

Reads the files that the recipe names below RAW and writes them under the same names below
PREPARED, which is then the recipe's data root. `train.doc` beside a training corpus, where there is
one, holds a document's id for each line. The result depends on recipe, text and seed alone.
"""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from model.data.augmentation import RUN_CHARACTERS, RUN_LENGTHS, paragraphs, variants
from model.data.cleaning import Pair, fault, fold, identity, near_twins, tidy
from model.data.corpus import read_lines, read_parallel
from model.data.recipe import Recipe, load_recipe
from model.data.recipe_sections import Corpus

logger = logging.getLogger(__name__)

REPORT_FILE = "prepared.json"
# A validation sentence with more twins than this is a common phrase. Training keeps those, and
# validation does without.
MAX_TWINS = 10
RUN_SHARE, DOCUMENT_RUN_SHARE = 0.3, 0.7
VARIANT_SHARE = 0.15


@dataclass
class Cleaned:
    """A corpus in preparation: its pairs, their documents, and counts of pairs left out."""

    pairs: list[Pair]
    documents: list[str] | None
    left_out: Counter[str] = field(default_factory=Counter)

    def keep(self, wanted: Sequence[bool], reason: str) -> None:
        """Leave out the pairs that are not wanted."""
        self.left_out[reason] += len(wanted) - sum(wanted)
        self.pairs = [p for p, good in zip(self.pairs, wanted, strict=True) if good]
        if self.documents is not None:
            self.documents = [d for d, good in zip(self.documents, wanted, strict=True) if good]


def main(
    recipe: Annotated[Path, typer.Argument(help="The recipe whose corpora to prepare.")],
    held_out: Annotated[
        list[Path] | None,
        typer.Argument(help="Source sides of other test sets: their sentences leave training."),
    ] = None,
    data_root: Annotated[Path, typer.Option(help="The raw corpora.")] = Path(),
    output: Annotated[Path, typer.Option(help="Folder to write.")] = Path("prepared"),
    seed: Annotated[int, typer.Option(help="Seed of runs and variants.")] = 1,
    run_sentences: Annotated[
        int, typer.Option(min=RUN_LENGTHS[0], help="Sentences in a run, at most.")
    ] = RUN_LENGTHS[1],
    run_characters: Annotated[
        int, typer.Option(min=1, help="Characters of a run's longer side, at most.")
    ] = RUN_CHARACTERS,
    most_characters: Annotated[
        int | None, typer.Option(min=1, help="The most characters of a corpus's target side.")
    ] = None,
) -> None:
    """Prepare the corpora of a recipe."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    loaded = load_recipe(recipe, data_root=data_root)
    longest_run = (run_sentences, run_characters)
    prepare(
        loaded,
        output,
        held_out or [],
        seed=seed,
        longest_run=longest_run,
        most_characters=most_characters,
    )


def prepare(
    recipe: Recipe,
    output: Path,
    held_out: Sequence[Path],
    *,
    seed: int,
    longest_run: tuple[int, int] = (RUN_LENGTHS[1], RUN_CHARACTERS),
    most_characters: int | None = None,
) -> None:
    """Write the prepared corpora and, as `prepared.json`, what was left out and added.

    Args:
        held_out: source sides of other test sets.
        longest_run: most sentences of a run, and most characters of its longer side.
        most_characters: limit for the target side; a random part of a larger corpus is kept.

    Raises:
        CorpusError: a corpus or a file of `held_out` cannot be used.
    """
    root = recipe.data.root
    languages = (recipe.languages.source, recipe.languages.target)
    validation = {c.name: _pairs(c) for c in recipe.data.valid}
    unseen = {fold(line) for path in held_out for line in read_lines(path)}
    report: dict[str, dict[str, int]] = {}
    cleaned: dict[str, Cleaned] = {}
    seen: set[Pair] = set()
    for corpus in recipe.data.train:
        text = _clean(corpus, languages, seen)
        if corpus.name in validation:
            validation[corpus.name] = _part_twins(text, validation[corpus.name])
        text.keep([fold(source) not in unseen for source, _ in text.pairs], "in a test set")
        cleaned[corpus.name] = text
        logger.info("%s: %d pairs, left out %s", corpus.name, len(text.pairs), dict(text.left_out))
    own = {fold(source) for pairs in validation.values() for source, _ in pairs}
    for corpus in recipe.data.train:
        text = cleaned[corpus.name]
        text.keep([fold(source) not in own for source, _ in text.pairs], "in validation")
        generator = random.Random(f"{seed} {corpus.name}")
        pairs, counts = _varied(text, generator, longest_run, recipe.vocabulary.sentinels)
        if most_characters is not None:
            pairs = _thinned(pairs, most_characters, generator)
            counts["written"] = len(pairs)
        _write(pairs, corpus, root, output)
        report[corpus.name] = counts
    for corpus in recipe.data.valid:
        _write(validation[corpus.name], corpus, root, output)
        report[f"{corpus.name} (validation)"] = {"pairs": len(validation[corpus.name])}
    (output / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _pairs(corpus: Corpus) -> list[Pair]:
    text = read_parallel(corpus.source, corpus.target)
    return list(zip(text.sources, text.targets, strict=True))


def _clean(corpus: Corpus, languages: tuple[str, str], seen: set[Pair]) -> Cleaned:
    """The good pairs of a corpus that no corpus before it has; adds them to `seen`."""
    sides = [read_lines(path) for path in (corpus.source, corpus.target)]
    pairs = [(tidy(source), tidy(target)) for source, target in zip(*sides, strict=True)]
    beside = corpus.source.with_suffix(".doc")
    text = Cleaned(pairs, read_lines(beside) if beside.exists() else None)
    faults = [fault(source, target, languages) for source, target in pairs]
    text.keep([reason is None for reason in faults], "")
    del text.left_out[""]
    text.left_out.update(reason for reason in faults if reason is not None)
    new = []
    for pair in text.pairs:
        key = identity(pair)
        new.append(key not in seen)
        seen.add(key)
    text.keep(new, "repeated")
    return text


def _part_twins(text: Cleaned, valid: list[Pair]) -> list[Pair]:
    """Remove near twins of validation pairs from `text`; returns the remaining validation pairs."""
    twins = near_twins(text.pairs, valid)
    counts = Counter(index for found in twins.values() for index in found)
    common = {index for index, count in counts.items() if count > MAX_TWINS}
    wanted = [twins.get(i, set()) <= common for i in range(len(text.pairs))]
    text.keep(wanted, "near twin of a validation pair")
    logger.info("%d of %d validation pairs are common phrases", len(common), len(valid))
    return [pair for i, pair in enumerate(valid) if i not in common]


def _varied(
    text: Cleaned, generator: random.Random, longest_run: tuple[int, int], sentinels: int
) -> tuple[list[Pair], dict[str, int]]:
    """A training corpus with its runs and variants, and the counts for the report."""
    share = RUN_SHARE if text.documents is None else DOCUMENT_RUN_SHARE
    sentences, characters = longest_run
    runs = paragraphs(
        text.pairs, text.documents, generator, share=share, longest=sentences, characters=characters
    )
    changed = variants(text.pairs, generator, share=VARIANT_SHARE, sentinels=sentinels)
    counts = {"raw": len(text.pairs) + text.left_out.total(), "kept": len(text.pairs)}
    counts |= {"paragraphs": len(runs), "variants": len(changed), **text.left_out}
    return [*text.pairs, *runs, *changed], counts


def _thinned(pairs: list[Pair], characters: int, generator: random.Random) -> list[Pair]:
    """A random part of the pairs, in their order, whose targets have about `characters`."""
    share = characters / max(1, sum(len(target) for _, target in pairs))
    return pairs if share >= 1.0 else [pair for pair in pairs if generator.random() < share]


def _write(pairs: Iterable[Pair], corpus: Corpus, root: Path, output: Path) -> None:
    for path, lines in zip((corpus.source, corpus.target), zip(*pairs, strict=True), strict=True):
        destination = output / path.relative_to(root)
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)

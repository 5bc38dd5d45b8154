"""Pairs in which a word and its translation are one sentinel, so that a model learns to copy it.

    python -m model.data.word_alignment RECIPE --data-root PREPARED
    python -m model.data.linked_sentinels RECIPE --data-root PREPARED --output PREPARED/sentinels

takes pairs of the recipe's corpora and replaces nouns and names on both sides: the words that an
aligner linked to each other and to no others. The prepared text has sentinels only for strings that
are equal on both sides, and beside sentences (`model.data.augmentation`), whereas the server puts
them wherever a noun may stand. The corpus has alignments, too, since words keep their places.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from model.bundle.spans import Span
from model.bundle.tokenizer import sentinel
from model.data.cleaning import Pair
from model.data.corpus import read_parallel
from model.data.recipe import load_recipe
from model.data.word_alignment import word_links, word_spans

_LEAST_CHARACTERS = 3
# An unlinked word of more characters beside a linked one is often a part of the same expression, as
# "train" in "train station", and would be left behind.
_MOST_UNLINKED_CHARACTERS = 3
_LARGEST_COUNTS = (0.6, 0.85, 0.95)  # of pairs, at most one, two, three sentinels; of others four


def with_linked_sentinels(
    pair: Pair, alignment: str, generator: random.Random, sentinels: int
) -> Pair | None:
    """The pair with sentinels for some of its linked nouns and names; None if it has none.

    Args:
        alignment: links of its words, in Pharaoh's format.
        sentinels: number of sentinels that the vocabulary has.
    """
    draw = generator.random()
    count = min(sentinels, 1 + sum(draw >= limit for limit in _LARGEST_COUNTS))
    spans = word_spans(pair[0]), word_spans(pair[1])
    linked = list(_linked_nouns(pair, spans, alignment))
    chosen = sorted(generator.sample(linked, min(count, len(linked))))
    if not chosen:
        return None
    sides = []
    for side, text in enumerate(pair):
        words = {spans[side][link[side]]: sentinel(n + 1) for n, link in enumerate(chosen)}
        for span in sorted(words, reverse=True):
            text = text[: span.start] + words[span] + text[span.end :]
        sides.append(text)
    return sides[0], sides[1]


def _linked_nouns(
    pair: Pair, spans: Sequence[Sequence[Span]], alignment: str
) -> Iterator[tuple[int, int]]:
    """Links (source word, target word) of nouns and names that have no other link."""
    links = word_links(alignment)
    counts = [Counter(link[side] for link in links) for side in (0, 1)]
    for link in links:
        words = [text[slice(*spans[side][link[side]])] for side, text in enumerate(pair)]
        if (
            all(word.isalpha() and len(word) >= _LEAST_CHARACTERS for word in words)
            and words[1][0].isupper()
            and link[1] > 0  # a capital says nothing of the first word
            and all(counts[side][link[side]] == 1 for side in (0, 1))
            and all(
                word in counts[0] or _is_short(spans[0], word)
                for word in (link[0] - 1, link[0] + 1)
            )
        ):
            yield link


def _is_short(spans: Sequence[Span], word: int) -> bool:
    """Whether a word is a punctuation mark or an article, or there is none."""
    if not 0 <= word < len(spans):
        return True
    return spans[word].end - spans[word].start <= _MOST_UNLINKED_CHARACTERS


def main(
    recipe: Annotated[Path, typer.Argument(help="A recipe whose corpora are aligned.")],
    data_root: Annotated[Path, typer.Option(help="The prepared corpora.")],
    output: Annotated[Path, typer.Option(help="The folder of the corpus to write.")],
    corpus: Annotated[
        list[str] | None, typer.Option(help="A corpus to take; by default, all of them.")
    ] = None,
    share: Annotated[float, typer.Option(help="Share of the pairs to take.", min=0, max=1)] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the choice.")] = 1,
) -> None:
    """Write a corpus of pairs with sentinels in place of words."""
    loaded = load_recipe(recipe, data_root=data_root)
    found = {one.name: one for one in loaded.data.train}
    if unknown := sorted(set(corpus or ()) - set(found)):
        raise typer.BadParameter(f"{recipe} has no corpus {unknown[0]}", param_hint="--corpus")
    if not loaded.vocabulary.sentinels:
        raise typer.BadParameter(f"{recipe}: vocabulary.sentinels is 0", param_hint="RECIPE")
    pairs, generator = [], random.Random(seed)
    for name in corpus or found:
        one = found[name]
        text = read_parallel(one.source, one.target, alignment=one.alignment)
        for source, target, links in zip(text.sources, text.targets, text.alignments, strict=True):
            if generator.random() < share:
                pair, count = (source, target), loaded.vocabulary.sentinels
                if (changed := with_linked_sentinels(pair, links, generator, count)) is not None:
                    pairs.append((*changed, links))
    output.mkdir(parents=True, exist_ok=True)
    endings = (loaded.languages.source, loaded.languages.target, "align")
    for column, ending in enumerate(endings):
        lines = "".join(f"{pair[column]}\n" for pair in pairs)
        (output / f"train.{ending}").write_text(lines, encoding="utf-8")
    typer.echo(f"{output}: {len(pairs)} pairs")


if __name__ == "__main__":
    typer.run(main)

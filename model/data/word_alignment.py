"""Word alignments of training text, made by an aligner and read as token alignments in training.

    python -m model.data.word_alignment RECIPE --data-root PREPARED

writes, beside the source file of each training corpus, a file `.align` with one line a sentence
pair: "0-0 1-2 ..." in Pharaoh's format, source word and target word from 0. Words are those of
`word_spans`, so that every segmentation into tokens can use them.

The aligner is eflomal (Östling and Tiedemann, 2016, "Efficient word alignment with Markov Chain
Monte Carlo"), `pip install eflomal`, which is licensed under the GPL and no dependency of this
project: any program that takes the same options will do. Of its two directions only the links that
both have are kept: few, but nearly all of them right.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

from model.bundle.spans import Span
from model.bundle.tokenizer import Tokenizer
from model.data.corpus import read_lines
from model.data.recipe import load_recipe

_WORD = re.compile(r"\w+|[^\w\s]")


def word_spans(text: str) -> list[Span]:
    """The spans of the words and punctuation marks of a text."""
    return [Span(*match.span()) for match in _WORD.finditer(text)]


def word_links(alignment: str) -> list[tuple[int, int]]:
    """The links (source word, target word) of an alignment in Pharaoh's format."""
    links = (link.partition("-") for link in alignment.split())
    return [(int(source), int(target)) for source, _, target in links]


def token_links(
    tokenizer: Tokenizer, source: str, target: str, alignment: str
) -> Iterator[tuple[int, int]]:
    """The pairs (source token, target token) whose words are linked.

    Args:
        tokenizer: divides both texts into tokens, by their likeliest segmentation.
        alignment: links of their words, in Pharaoh's format.
    """
    tokens = [_tokens_of_words(tokenizer, text) for text in (source, target)]
    for link in word_links(alignment):
        left, right = (tokens[side].get(word, ()) for side, word in enumerate(link))
        yield from ((s, t) for s in left for t in right)


def _tokens_of_words(tokenizer: Tokenizer, text: str) -> dict[int, list[int]]:
    """The tokens that share a character with each word, by the word's number."""
    word_at = {
        character: number
        for number, span in enumerate(word_spans(text))
        for character in range(*span)
    }
    found: dict[int, list[int]] = {}
    for token, span in enumerate(tokenizer.encoded_spans(text)):
        for number in {word_at[c] for c in range(*span) if c in word_at}:
            found.setdefault(number, []).append(token)
    return found


def link_mask(
    links: Sequence[Sequence[tuple[int, int]]], num_targets: int, num_sources: int
) -> npt.NDArray[np.bool_]:
    """[rows, targets, sources] where each row's tokens are linked.

    Args:
        links: (source token, target token) of each row.
    """
    mask = np.zeros((len(links), num_targets, num_sources), np.bool_)
    for row, pairs in enumerate(links):
        for source, target in pairs:
            mask[row, target, source] = True
    return mask


def align(pairs: Sequence[tuple[str, str]], aligner: str) -> list[str]:
    """The links of each pair's words that both directions have, in Pharaoh's format.

    Args:
        aligner: a program that takes eflomal's options.

    Raises:
        subprocess.CalledProcessError: the aligner failed.
        OSError: there is no such program.
    """
    with tempfile.TemporaryDirectory() as folder:
        forward, reverse, *texts = (Path(folder) / name for name in ("fwd", "rev", "src", "trg"))
        for path, side in zip(texts, zip(*pairs, strict=True), strict=True):
            lines = (" ".join(text[slice(*span)] for span in word_spans(text)) for text in side)
            path.write_text("".join(f"{line.casefold()}\n" for line in lines), encoding="utf-8")
        options = zip(("-s", "-t", "-f", "-r"), (*texts, forward, reverse), strict=True)
        subprocess.run([aligner, *(str(o) for option in options for o in option)], check=True)
        directions = (read_lines(forward), read_lines(reverse))
    return [
        " ".join(sorted(set(one.split()) & set(other.split()), key=_numbers))
        for one, other in zip(*directions, strict=True)
    ]


def _numbers(link: str) -> tuple[int, ...]:
    return tuple(map(int, link.split("-")))


def main(
    recipe: Annotated[Path, typer.Argument(help="The recipe whose training corpora to align.")],
    data_root: Annotated[Path, typer.Option(help="The prepared corpora.")],
    aligner: Annotated[str, typer.Option(help="eflomal's program.")] = "eflomal-align",
) -> None:
    """Align the words of all training corpora of a recipe, together."""
    corpora = load_recipe(recipe, data_root=data_root).data.train
    texts = [(read_lines(corpus.source), read_lines(corpus.target)) for corpus in corpora]
    pairs = [pair for text in texts for pair in zip(*text, strict=True)]
    alignments = iter(align(pairs, aligner))
    for corpus, (sources, _) in zip(corpora, texts, strict=True):
        lines = "".join(f"{next(alignments)}\n" for _ in sources)
        corpus.alignment.write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)

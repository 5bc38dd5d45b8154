"""Rates a model's translations of 400 sentences by domain, English to German: right or wrong.

    python -m bench.domain_quality --model model/pretrained/en-de

prints, for each domain, how many translations of each half are right. The first half (sentences 1,
3, 5 ... of a domain) is there to choose training text by, and `--show` prints its wrong ones. The
second half judges, and shows nothing but totals: whoever looks at it can no longer judge by it.

The sentences are in `bench/domains`, one file a domain. Each has two or more translations, and
checks of what any translation has to say: regular expressions, searched for in the folded text. The
checks ask for the meaning of each word that carries one, in all the wordings that were thought of;
they leave address, word order and grammar alone.
"""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import typer

FOLDER = Path(__file__).with_name("domains")
HALVES = ("choose", "judge")
# A word or two that come three times on end, or three words and more that come twice: a loop.
_LOOP = re.compile(r"\b(\w+(?:\W+\w+)?)(?:\W+\1){2}\b|\b(\w+(?:\W+\w+){2,})\W+\2\b")
_WORD = re.compile(r"\w+")
# Shorter ones are often German words, too: "will", "was", "die".
_LEAST_LETTERS_OF_A_REMNANT = 5


@dataclass(frozen=True)
class DomainSentence:
    """A sentence of a domain.

    Args:
        en: the source.
        de: accepted translations.
        needs: each has to be found in a right translation.
        never: none of them may be.
    """

    en: str
    de: tuple[str, ...]
    needs: tuple[str, ...]
    never: tuple[str, ...] = ()

    def is_right(self, translation: str) -> bool:
        """Whether a translation says what the sentence says."""
        text = folded(translation)
        if text in self._references:
            return True
        return (
            all(re.search(need, text) for need in self.needs)
            and not any(re.search(wrong, text) for wrong in self.never)
            and self._has_a_likely_length(text)
            and not self._remnants(text)
            and not _LOOP.search(text)
        )

    @cached_property
    def _references(self) -> frozenset[str]:
        return frozenset(folded(reference) for reference in self.de)

    def _has_a_likely_length(self, text: str) -> bool:
        lengths = [len(_WORD.findall(reference)) for reference in self._references]
        return min(lengths) / 2 <= len(_WORD.findall(text)) <= 2 * max(lengths)

    def _remnants(self, text: str) -> set[str]:
        """English words that were left as they are, and that German does not have."""
        expected = {word for reference in self._references for word in _WORD.findall(reference)}
        left = set(_WORD.findall(folded(self.en))) & set(_WORD.findall(text)) - expected
        return {
            word
            for word in left
            if len(word) >= _LEAST_LETTERS_OF_A_REMNANT
            and not any(re.search(need, word) for need in self.needs)
        }


def folded(text: str) -> str:
    """A text in lower case, with "ss" for "ß" and single spaces."""
    return " ".join(text.casefold().split())


def read_domains(folder: Path = FOLDER) -> dict[str, list[DomainSentence]]:
    """The sentences of each domain, by its name, in the order of the file."""
    domains: dict[str, list[DomainSentence]] = {}
    for path in sorted(folder.glob("*.toml")):
        found = tomllib.loads(path.read_text(encoding="utf-8"))["sentence"]
        domains[path.stem] = [
            DomainSentence(one.pop("en"), **{key: tuple(value) for key, value in one.items()})
            for one in found
        ]
    return domains


def half(sentences: Sequence[DomainSentence], name: str) -> list[DomainSentence]:
    """The sentences of a domain that belong to one of `HALVES`: every second one."""
    return list(sentences[HALVES.index(name) :: 2])


def main(
    model: Annotated[Path, typer.Option(help="The bundle, English to German.")],
    beam_size: Annotated[int, typer.Option(min=1, help="Beam size.")] = 1,
    show: Annotated[bool, typer.Option(help="Print what is wrong in the first half.")] = False,
) -> None:
    """Print a table of right translations by domain and half."""
    domains = read_domains()
    sources = [one.en for sentences in domains.values() for one in sentences]
    translations = dict(
        zip(sources, asyncio.run(_translated(model, sources, beam_size)), strict=True)
    )
    right = {
        name: {
            each: [one.is_right(translations[one.en]) for one in half(sentences, each)]
            for each in HALVES
        }
        for name, sentences in domains.items()
    }
    for line in table(right):
        typer.echo(line)
    for name, sentences in domains.items() if show else ():
        for one in half(sentences, HALVES[0]):
            if not one.is_right(translations[one.en]):
                typer.echo(f"{name}: {one.en}\n    {translations[one.en]}")


def table(right: dict[str, dict[str, list[bool]]]) -> list[str]:
    """Markdown lines: right translations of all, by domain and half."""
    lines = ["| domain | choose | judge |", "| --- | ---: | ---: |"]
    sums: dict[str, list[bool]] = {each: [] for each in HALVES}
    for name, halves in right.items():
        lines.append(_row(name, halves))
        for each, rated in halves.items():
            sums[each] += rated
    return [*lines, _row("all", sums)]


def _row(name: str, halves: dict[str, list[bool]]) -> str:
    cells = (f"{sum(halves[each])} of {len(halves[each])}" for each in HALVES)
    return f"| {name} | {' | '.join(cells)} |"


async def _translated(model: Path, sources: Sequence[str], beam_size: int) -> list[str]:
    """The translations as the server makes them with its default options."""
    from bench.sentence_translator import sentence_translator
    from service.domain.requests import SearchOptions
    from service.translation.options import TranslateOptions

    options = TranslateOptions(search=SearchOptions(beam_size=beam_size))
    async with sentence_translator(model) as translator:
        results = await translator.translate(sources, options)
    return [result.text for result in results]


if __name__ == "__main__":
    typer.run(main)

"""Measures how often inline tags come back around the right word.

    python -m bench.markup [BUNDLE]

translates the fragments of `fragments.tsv`, which were written for this, once with the model's
alignments and once with tags moved by relative position. A tag counts as right if it stands around
one of the words that were written down for it and around at most two words more than in the source.
Elements whose words the translation does not contain at all are left out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Unpack

import typer

from bench.markup.shipped import sentence_translator
from service.text.interface import LinkedTranslator
from service.text.markup.markup_translator import MarkupTranslator
from service.text.options import MimeType, TextOptions
from service.translation.engine_call import CallArguments
from service.translation.links import Link, LinkedPieces
from service.translation.options import TranslateOptions
from service.translation.results import TextResult
from service.translation.translator import StreamDelta, Translator

_ROOT = Path(__file__).parents[2]
_FRAGMENTS = Path(__file__).with_name("fragments.tsv")
# Ahead of every place, so that elements within others are found too.
_ELEMENT = re.compile(r"(?=(?P<tag><(b|i|u|a|em|strong|span|dfn)\b[^>]*>)(?P<content>.*?)</\2>)")
_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True)
class Fragment:
    """A fragment of a document.

    Attributes:
        kind: what it looks like a part of.
        source: in English.
        words: for each inline element, the beginnings of words that belong into it in German.
    """

    kind: str
    source: str
    words: Sequence[Sequence[str]]


class WithoutAlignments:
    """A translator whose links join whole sentences, as those of a model that can't align."""

    def __init__(self, below: Translator) -> None:
        self._below = below

    async def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> list[TextResult]:
        """Translate texts of one sentence each."""
        results = await self._below.translate(texts, options, **shared)
        return [
            replace(result, links=_whole(text, result.text))
            for text, result in zip(texts, results, strict=True)
        ]

    def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> AsyncIterator[StreamDelta | TextResult]:
        """Translate one text as a stream, which has no links."""
        return self._below.stream(text, options, **shared)


def _whole(text: str, translation: str) -> list[Link]:
    pieces = LinkedPieces()
    pieces.translate(text, translation)
    return list(pieces.links)


def fragments() -> list[Fragment]:
    """All fragments."""
    rows = [
        line.split("\t")
        for line in _FRAGMENTS.read_text("utf-8").splitlines()
        if not line.startswith("#")
    ]
    return [
        Fragment(kind, source, [each.split("|") for each in words.split(";")])
        for kind, source, words in rows
    ]


def judged(fragment: Fragment, translation: str) -> list[bool | None]:
    """For each inline element whether it is right; None if its words are not there."""
    plain = _TAG.sub("", translation).lower()
    verdicts: list[bool | None] = []
    translated = list(_ELEMENT.finditer(translation))
    for match, stems in zip(_ELEMENT.finditer(fragment.source), fragment.words, strict=True):
        if not any(_has(plain, stem) for stem in stems):
            verdicts.append(None)
            continue
        same = [each["content"] for each in translated if each["tag"] == match["tag"]]
        verdicts.append(any(_is_right(each, match["content"], stems) for each in same))
    return verdicts


def _is_right(content: str, source: str, stems: Sequence[str]) -> bool:
    content, source = _TAG.sub("", content), _TAG.sub("", source)
    is_short = len(content.split()) <= len(source.split()) + 2
    return is_short and any(_has(content.lower(), stem) for stem in stems)


def _has(text: str, stem: str) -> bool:
    return re.search(rf"\b(?:\w*{re.escape(stem.lower())})", text) is not None


async def measure(bundle: Path, show: bool) -> None:
    """Print the share of tags on the right word, by kind of fragment and placement."""
    given = fragments()
    async with sentence_translator(bundle) as sentences:
        stages: dict[str, LinkedTranslator] = {
            "alignments": sentences,
            "relative position": WithoutAlignments(sentences),
        }
        for name, below in stages.items():
            translator = MarkupTranslator(below, TextOptions(MimeType.HTML), sentences.limits)
            results = await translator.translate(
                [fragment.source for fragment in given], sentences.default_options
            )
            counts: dict[str, list[bool]] = {}
            for fragment, result in zip(given, results, strict=True):
                for verdict in judged(fragment, result.text):
                    if verdict is not None:
                        counts.setdefault(fragment.kind, []).append(verdict)
                    if show and verdict is not True:
                        typer.echo(f"  {verdict}: {fragment.source} -> {result.text}")
            every = [verdict for verdicts in counts.values() for verdict in verdicts]
            typer.echo(f"{name}: {sum(every)} of {len(every)}, {_share(every)}")
            for kind, verdicts in counts.items():
                typer.echo(f"  {kind}: {sum(verdicts)} of {len(verdicts)}, {_share(verdicts)}")


def _share(verdicts: Sequence[bool]) -> str:
    return f"{100 * sum(verdicts) / len(verdicts):.0f} %"


def main(
    bundle: Annotated[Path, typer.Argument()] = _ROOT / "model/pretrained/en-de",
    show: Annotated[bool, typer.Option(help="Also print what went wrong.")] = False,
) -> None:
    """Measure how often inline tags come back around the right word."""
    asyncio.run(measure(bundle, show))


if __name__ == "__main__":
    typer.run(main)

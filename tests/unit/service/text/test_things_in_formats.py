"""Generated sentences with things, over a model that damages at random: kept or warned of."""

from __future__ import annotations

import asyncio
import html
import os
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polib
import pytest

from bench.kept_sentences import KINDS, sample_sentence
from model.bundle.carriers import DEFAULT_CARRIERS, SENTINELS, Carrier
from service.text.markup.markdown_inline import encode
from service.text.options import MimeType, TextOptions
from service.text.text_translator import text_translator
from service.text.things.things import ALL_KINDS
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import TextResult
from tests.unit.service.documents.samples import read
from tests.unit.service.text.scripted_translator import FakeTranslator

CARRIERS = {
    "usual": DEFAULT_CARRIERS,
    "sentinels": (Carrier(SENTINELS, 2), *DEFAULT_CARRIERS),
    "none": (),
}


@dataclass
class DamagingTranslator(FakeTranslator):
    """Damages some words, always the same of the same text."""

    seed: int = 0
    limits: TranslatorLimits = field(default_factory=TranslatorLimits)
    carriers: tuple[Carrier, ...] = DEFAULT_CARRIERS

    def _translated(self, text: str, options: TranslateOptions, index: int) -> TextResult:
        rng = random.Random(f"{self.seed} {text}")
        share = rng.choice([0.1, 0.3, 0.6])
        words = [word for word in re.findall(r"\S+", text) if rng.random() < share]
        self.words = {word: damaged(word, rng) for word in words}
        return super()._translated(text, options, index)


def damaged(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word))
    return rng.choice(
        [
            "",
            "\ufffd",
            word[:at] + word[at + 1 :],
            word[:at] + rng.choice("x7{%") + word[at + 1 :],
            f"{word} {word}",
            word.swapcase(),
            rng.choice(["{1}", "{2}", "XX1", "\ue001", "%1"]),
            " ".join([word] * 9),
        ]
    )


async def translated(
    below: DamagingTranslator, text: str, mime_type: MimeType = MimeType.PLAIN
) -> TextResult:
    options = TextOptions(mime_type, verbatim=ALL_KINDS, adapt_letter_case=True)
    [result] = await text_translator(below, options, ("en", "de")).translate([text])  # type: ignore[arg-type]
    assert result.error is None
    return result


async def in_plain_text(below: DamagingTranslator, text: str) -> tuple[str, Sequence[Any]]:
    result = await translated(below, text)
    return result.text, result.warnings


async def in_html(below: DamagingTranslator, text: str) -> tuple[str, Sequence[Any]]:
    first, *rest = html.escape(text, quote=False).split(" ")
    document = f"<p><b>{first}</b> {' '.join(rest)}</p>"
    result = await translated(below, document, MimeType.HTML)
    return html.unescape(re.sub(r"</?(?:p|b)>", "", result.text)), result.warnings


async def in_markdown(below: DamagingTranslator, text: str) -> tuple[str, Sequence[Any]]:
    result = await translated(below, f"- {encode(text)}", MimeType.MARKDOWN)
    written = result.text.removeprefix("- ")
    return html.unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", written)), result.warnings


async def in_po(below: DamagingTranslator, text: str) -> tuple[str, Sequence[Any]]:
    entry = polib.POEntry(msgid=text)
    document = read("a.po", f"{entry}\n")
    translations: list[str] = []
    warnings: list[Any] = []
    for segment in document.segments:
        result = await translated(below, segment.text, segment.mime_type)
        translations.append(result.text)
        warnings += result.warnings
    [written] = polib.pofile(document.write(translations).decode())
    return written.msgstr, [*warnings, *(["fuzzy"] if written.fuzzy else [])]


NUM_SEEDS = int(os.environ.get("NUM_SEEDS", 4))
FORMATS = {"plain": in_plain_text, "HTML": in_html, "Markdown": in_markdown, "PO": in_po}


@pytest.mark.parametrize("carriers", CARRIERS)
@pytest.mark.parametrize("name", FORMATS)
def test_things_are_kept_or_warned_of(name: str, carriers: str) -> None:
    wrong = []
    for seed in range(NUM_SEEDS):
        rng = random.Random(f"{seed} {name}")
        for kind in KINDS:
            sample = sample_sentence(rng, kind)
            below = DamagingTranslator(seed=seed, carriers=CARRIERS[carriers])
            text, warnings = asyncio.run(FORMATS[name](below, sample.text))
            if not warnings and not sample.is_right(text):
                wrong.append((sample.text, text))
    assert not wrong

"""CAPITALS and Title Case: the model alone, and with sentences translated in another letter case.

    python -m bench.text.letter_case [CORPORA] [--bundle DIR] [--lines 500]

CORPORA is the folder of the model's corpora; the lines are of its `tatoeba/valid.en`. Prints chrF2
for `service/TEXT.md`: of CAPITALS against references in capitals, of Title Case against references
as they are, because German has none. Then, of single words, how many come back with a word: that is
all that a translation without context can be asked for. Without CORPORA, only these.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from bench.text.in_process import sentence_translator
from service.text.things.sentence_repair import TermRules
from service.text.things.terms_translator import TermsTranslator
from service.translation.blank_retries import has_word
from service.translation.options import TranslateOptions

# The commonest English words, most of which mean little alone.
_WORDS = (
    "the of and to a in is you that it he was for on are as with his they at be this have from or"
    " one had by word but not what all were we when your can said there use an each which she do"
)
# Blank are the translations that no second look takes the place of: hypotheses as they were made.
_AS_MADE = TranslateOptions(num_hypotheses=1, return_alignments="hard")


def title(text: str) -> str:
    """The text with a capital at the beginning of every word."""
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))


async def measure(corpora: Path, bundle: Path | None, lines: int) -> None:
    """Print the table."""
    import sacrebleu

    folder = corpora / "tatoeba"
    sources, references = (
        (folder / f"valid.{code}").read_text(encoding="utf-8").split("\n")[:-1]
        for code in ("en", "de")
    )
    step = max(1, len(sources) // lines)
    sources, references = sources[::step][:lines], references[::step][:lines]
    capitals = [reference.upper() for reference in references]
    cases = (
        ("as they are", sources, references),
        ("CAPITALS", [source.upper() for source in sources], capitals),
        ("Title Case", [title(source) for source in sources], references),
    )
    print("| lines | model alone | server |\n| --- | ---: | ---: |")
    async with sentence_translator(bundle) as model:
        stage = TermsTranslator(model, TermRules("en", "de"), model.limits)
        for name, texts, wanted in cases:
            scores = []
            for translator in (model, stage):
                results = await translator.translate(texts)
                outputs = [result.text for result in results]
                scores.append(sacrebleu.corpus_chrf(outputs, [wanted]).score)
            print(f"| {name} | {scores[0]:.1f} | {scores[1]:.1f} |")


async def measure_words(bundle: Path | None) -> None:
    """Print the table of single words."""
    print("| single words | words | as the model made them | server | as they were |")
    print("| --- | ---: | ---: | ---: | ---: |")
    async with sentence_translator(bundle) as model:
        stage = TermsTranslator(model, TermRules("en", "de"), model.limits)
        for name, change in (("lower", str), ("Title", str.title), ("UPPER", str.upper)):
            words = list(map(change, _WORDS.split()))
            made, results = await model.translate(words, _AS_MADE), await stage.translate(words)
            counts = [sum(has_word(each.text) for each in found) for found in (made, results)]
            copied = sum(r.text == word for r, word in zip(results, words, strict=True))
            print(f"| {name} case | {len(words)} | {counts[0]} | {counts[1]} | {copied} |")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", type=Path, nargs="?")
    parser.add_argument("--bundle", type=Path, help="in place of the included model")
    parser.add_argument("--lines", type=int, default=500)
    arguments = parser.parse_args()
    if arguments.corpora is not None:
        asyncio.run(measure(arguments.corpora, arguments.bundle, arguments.lines))
    asyncio.run(measure_words(arguments.bundle))


if __name__ == "__main__":
    main()

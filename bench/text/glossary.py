"""Ways to put a glossary's terms into translations: terms kept, BLEU lost, CPU time added.

    python -m bench.text.glossary CORPORA [--bundle DIR] [--lines 300]

CORPORA is the folder of the model's corpora. The glossary is made of its validation texts: pairs
of an English and a German word that mostly occur in the same lines. The lines are those whose
reference has the German word of each English one, so that a perfect translation loses nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from bench.text.in_process import sentence_translator
from service.text.glossaries.glossary import Glossary
from service.text.things.sentence_repair import TermRules
from service.text.things.terms_translator import TermsTranslator
from service.translation.results import TextResult

_METHODS: dict[str, tuple[str, ...]] = {
    "none": (),
    "constrain": ("constrain",),
    "replace": ("replace",),
    "stand in": ("stand in",),
    "constrain, then replace": ("constrain", "replace"),
    "stand in, then replace": ("stand in", "replace"),
    "constrain, then replace, then stand in": ("constrain", "replace", "stand in"),
}
_CORPORA = ("gnome-docs", "msdocs-aspnet", "debian-handbook", "php-manual", "bcontrast", "mlqe-pe")
_LEAST_LINES = 4
_LEAST_SHARE = 0.6


def validation_lines(corpora: Path) -> list[tuple[str, str]]:
    """Lines of the validation texts, of usual length."""
    pairs: list[tuple[str, str]] = []
    for name in _CORPORA:
        sides = [
            (corpora / name / f"valid.{code}").read_text(encoding="utf-8").split("\n")
            for code in ("en", "de")
        ]
        pairs += zip(*sides, strict=True)
    return [pair for pair in dict.fromkeys(pairs) if 4 <= len(pair[0].split()) <= 30]


def make_glossary(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Words that mostly occur together: English in lower case, German nouns."""
    sources, both = Counter[str](), Counter[tuple[str, str]]()
    targets = Counter[str]()
    for source, target in pairs:
        english = set(re.findall(r"\b[a-z]{4,}\b", source))
        german = set(re.findall(r"(?<=[a-z,] )[A-ZÄÖÜ][a-zäöüß]{3,}\b", target))
        sources.update(english)
        targets.update(german)
        both.update((one, other) for one in english for other in german)
    found: dict[str, str] = {}
    for (one, other), count in both.most_common():
        share = 2 * count / (sources[one] + targets[other])
        if count >= _LEAST_LINES and share >= _LEAST_SHARE:
            found.setdefault(one, other)
    return found


def share_kept(results: list[TextResult]) -> float:
    """The share of terms that the translations have."""
    uses = [use for result in results for use in result.terms]
    return sum(use.num_applied for use in uses) / sum(use.count for use in uses)


async def measure(corpora: Path, bundle: Path | None, lines: int) -> None:
    """Print the table."""
    import sacrebleu

    pairs = validation_lines(corpora)
    terms = make_glossary(pairs)
    glossary = Glossary.of(terms.items())
    chosen = []
    for source, target in pairs:
        asked = {match.entry.forms[0] for match in glossary.matches(source)}
        if asked and all(re.search(rf"\b{re.escape(term)}\b", target) for term in asked):
            chosen.append((source, target))
    chosen = chosen[:: max(1, len(chosen) // lines)][:lines]
    sources, references = [source for source, _ in chosen], [target for _, target in chosen]
    print(f"{len(glossary.entries)} terms, {len(sources)} lines\n")
    print("| terms are put in by | terms kept | BLEU | chrF2 | CPU ms a line |")
    print("| --- | ---: | ---: | ---: | ---: |")
    rules = TermRules("en", "de", letter_case=False, glossary=glossary)
    async with sentence_translator(bundle) as model:
        await model.translate(sources[:20])
        for name, methods in _METHODS.items():
            stage = TermsTranslator(model, replace(rules, term_methods=methods), model.limits)
            started = time.process_time()
            results = await stage.translate(sources)
            milliseconds = (time.process_time() - started) * 1000 / len(sources)
            outputs = [result.text for result in results]
            bleu = sacrebleu.corpus_bleu(outputs, [references]).score
            chrf = sacrebleu.corpus_chrf(outputs, [references]).score
            kept = share_kept(results)
            print(f"| {name} | {kept:.1%} | {bleu:.1f} | {chrf:.1f} | {milliseconds:.1f} |")
        started = time.process_time()
        await model.translate(sources)
        milliseconds = (time.process_time() - started) * 1000 / len(sources)
        print(f"\nthe model alone, without a look for terms: {milliseconds:.1f} CPU ms a line")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--bundle", type=Path, help="in place of the included model")
    parser.add_argument("--lines", type=int, default=300)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.corpora, arguments.bundle, arguments.lines))


if __name__ == "__main__":
    main()

"""Measures how often translations keep codes, times, placeholders and quotes.

    python -m bench.kept model/pretrained/en-de --output bench/reports/kept

The model is any bundle: one that ships, a pulled or an imported one. Each sentence is generated
(`kept_sentences.py`), and translated by the server's own stages. The result is right, has a
warning, or is silently wrong. There are sentences in English, German, French and Spanish. Into
German, amounts and units may be in words; into other languages, they have to keep their signs.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.kept_sentences import KINDS, Pair, SampleSentence, kinds_for, sample_sentence
from bench.recompute import REPORT_FILE, store
from bench.sentence_translator import sentence_translator
from model.bundle.bundle import Bundle

_RIGHT, _WARNED, _WRONG, _ALARM = "right", "warned", "wrong", "right, warned"
_FEW = 20


def main(
    model: Annotated[Path, typer.Argument(help="A bundle.")] = Path("model/pretrained/en-de"),
    sentences: Annotated[int, typer.Option(min=1)] = 2000,
    seed: int = 1,
    languages: Annotated[
        str | None,
        typer.Option(help="Source and target (en,fr), for a bundle with several directions."),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="A directory for the report.")] = None,
) -> None:
    """Translate generated sentences, and print a table of what was kept."""
    rng = random.Random(seed)
    try:
        direction = _direction(model, languages)
        pair = Pair.of(*direction)
        kinds = kinds_for(pair)
    except ValueError as exc:  # of a bundle too
        raise typer.BadParameter(str(exc)) from exc
    samples = [sample_sentence(rng, kinds[index % len(kinds)], pair) for index in range(sentences)]
    outcomes, bare = asyncio.run(translated(model, samples, direction))
    summary = summary_of(model, samples, outcomes, bare, seed)
    typer.echo(files(summary)[REPORT_FILE])
    if output is not None:
        store(output, summary)


async def translated(
    model: Path, samples: Sequence[SampleSentence], direction: tuple[str, str]
) -> tuple[list[tuple[str, str]], list[str]]:
    """The translation of each sentence with its outcome, and that of the model alone."""
    from service.text.options import TextOptions
    from service.text.text_translator import text_translator
    from service.things.things import ALL_KINDS

    texts = [sample.text for sample in samples]
    async with sentence_translator(model) as translator:
        sentences = translator.between(*direction)
        options = TextOptions(verbatim=ALL_KINDS, adapt_letter_case=True)
        results = await text_translator(sentences, options, direction).translate(texts)
        alone = await sentences.translate(texts)
    outcomes = []
    for sample, result in zip(samples, results, strict=True):
        if result.error is not None:
            raise result.error
        is_right = sample.is_right(result.text)
        if is_right:
            outcome = _ALARM if result.warnings else _RIGHT
        else:
            outcome = _WARNED if result.warnings else _WRONG
        outcomes.append((outcome, result.text))
    bare = [
        _RIGHT if sample.is_right(result.text) else _WRONG
        for sample, result in zip(samples, alone, strict=True)
    ]
    return outcomes, bare


def _direction(model: Path, languages: str | None) -> tuple[str, str]:
    """The codes of source and target, by default those of the bundle.

    Raises:
        ValueError: the bundle cannot be used, or has no such direction.
    """
    bundle = Bundle.load(model)
    if languages is None:
        return bundle.source_language, bundle.target_language
    source, _, target = languages.partition(",")
    return bundle.directions.choose(source.strip(), target.strip())


def summary_of(
    model: Path,
    samples: Sequence[SampleSentence],
    outcomes: Sequence[tuple[str, str]],
    bare: Sequence[str],
    seed: int,
) -> dict[str, Any]:
    """Counts by kind, and the first sentences that are silently wrong."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    alone: Counter[str] = Counter()
    wrong = []
    for sample, (outcome, text), without in zip(samples, outcomes, bare, strict=True):
        for name in (sample.things[0].kind, "all"):
            counts[name][outcome] += 1
            alone[name] += without == _RIGHT
        if outcome == _WRONG:
            wrong.append([sample.text, text])
    return {
        "benchmark": "kept",
        "model": model.name,
        "sentences": len(samples),
        "seed": seed,
        "silently_wrong": counts["all"][_WRONG] / len(samples),
        "kinds": {name: dict(counts[name]) for name in [*KINDS, "all"] if name in counts},
        "right_by_the_model_alone": dict(alone),
        "wrong": wrong[:_FEW],
    }


def files(summary: Mapping[str, Any]) -> dict[str, str]:
    """The report of a summary."""
    lines = [
        "# Things that translations keep",
        "",
        f"{summary['sentences']:,} generated sentences with one to three things (seed "
        f"{summary['seed']}), {summary['model']}, `python -m bench.kept`. A row counts sentences "
        "by their first thing.",
        "",
        "| first thing | sentences | right | right, but warned | warned | wrong, silently "
        "| right by the model alone |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, found in summary["kinds"].items():
        count, total = Counter(found), sum(found.values())
        lines.append(
            f"| {name} | {total:,} | {count[_RIGHT]:,} | {count[_ALARM]:,} "
            f"| {count[_WARNED]:,} | {count[_WRONG]:,} "
            f"| {100 * summary['right_by_the_model_alone'][name] / total:.0f} % |"
        )
    lines += ["", f"Silently wrong: {100 * summary['silently_wrong']:.2f} %.", ""]
    if wrong := summary["wrong"]:
        lines += ["| sentence | translation |", "| --- | --- |"]
        lines += [f"| `{a}` | `{b}` |".replace("\n", " ") for a, b in wrong]
        lines.append("")
    return {REPORT_FILE: "\n".join(lines)}


if __name__ == "__main__":
    typer.run(main)

"""The report about context, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAME = "context"
_GENDERS = {"m": "er", "f": "sie", "n": "es"}


def render(summary: Mapping[str, Any]) -> str:
    """The tables of a summary of `bench.context.run`."""
    lines = ["# Translating with the sentences before", ""]
    for test in summary["documents"]:
        lines += _documents(test)
    for test in summary["pronouns"]:
        lines += _pronouns(test)
    if summary["natural"]:
        lines += ["## Pronouns in text, contrastive", ""]
        for test in summary["natural"]:
            lines += [f"{test['name']}:", "", *_contrastive(test["contrastive"])]
    return "\n".join(lines)


def _documents(test: Mapping[str, Any]) -> list[str]:
    lines = [
        f"## {test['name']}: {test['num_sentences']:,} lines, {test['num_documents']} documents",
        "",
        "| | BLEU | p | chrF2 | p | tokens read | decoder steps | translated alone after all |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, run in test["runs"].items():
        scores = " | ".join(
            f"{run[metric]['score']:.1f} | {_probability(run[metric]['p'])}"
            for metric in ("BLEU", "chrF2")
        )
        lines.append(
            f"| {name} | {scores} | {run['num_source_tokens']:,} | {run['num_steps']:,} "
            f"| {run['num_fallbacks']:,} |"
        )
    return [*lines, ""]


def _probability(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _pronouns(test: Mapping[str, Any]) -> list[str]:
    lines = [
        f"## Pronouns, {test['distance']} sentences between: {test['num_items']:,} items",
        "",
        "| free translation | right | wrong | right of both | no pronoun | other noun |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, counts in test["free"].items():
        right, wrong = counts["right"], counts["wrong"]
        share = 100 * right / max(1, right + wrong)
        lines.append(
            f"| {name} | {right:,} | {wrong:,} | {share:.1f} % | {counts['without']:,} "
            f"| {counts['unknown']:,} |"
        )
    return [*lines, "", *_contrastive(test["contrastive"])]


def _contrastive(by_count: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = [
        "| contrastive, sentences before | " + " | ".join(_GENDERS.values()) + " | all |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for count, contrasts in by_count.items():
        rows = [contrasts[gender] for gender in _GENDERS]
        rows.append([sum(row[i] for row in rows) for i in (0, 1)])
        shares = " | ".join(f"{_percent(*row)} ({row[0]:,} of {row[1]:,})" for row in rows)
        lines.append(f"| {count} | {shares} |")
    return [*lines, ""]


def _percent(right: int, total: int) -> str:
    return f"{100 * right / total:.1f} %" if total else "–"

"""The report on a plan's trainings: tables of BLEU, and a plot against numbers of pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.studies import curves
from bench.studies.trainings.plan import TrainingPlan, variant_multiplications

NAME = "trainings"
Results = Mapping[str, Mapping[str, Any]]
_DRAWN = "BLEU by training pairs"
_CPU_TIMES = 8  # rows of the table of losses by CPU time


def to_dict(plan: TrainingPlan, results: Results, about: Mapping[str, str]) -> dict[str, Any]:
    """The summary.

    Args:
        about: lines for the head of the report.
    """
    variants = [
        {
            "name": variant.name,
            "pairs": variant.pairs,
            "multiplications": variant_multiplications(variant, plan.document_tokens)
            if plan.document_tokens
            else None,
        }
        for variant in plan.variants
    ]
    return {
        "benchmark": NAME,
        "about": about,
        "question": plan.question,
        "equal": plan.equal,
        "document_tokens": plan.document_tokens,
        "variants": variants,
        "results": results,
    }


def render(summary: Mapping[str, Any]) -> str:
    """The report of a summary, as Markdown. A variant without a result yet has empty cells."""
    results: Results = summary["results"]
    equal = {
        "updates": "All variants had as many updates.",
        "multiplications": "All variants had as many multiplications, in pairs of "
        f"{summary['document_tokens']:,} tokens a side.",
        "nothing": "Each variant had as many updates as suit it.",
    }
    corpora = sorted({name for result in results.values() for name in result["bleu"]})
    # Where nothing is equal, neither are vocabularies: losses of their pieces can't be compared,
    # those of characters can.
    update = _last_common_update(results) if summary["equal"] != "nothing" else ""
    by_character = summary["equal"] == "nothing" and all(
        "tokens_per_character" in result for result in results.values()
    )
    loss = f"loss after {int(update):,} updates | " if update else ""
    loss += "loss of a character | " if by_character else ""
    lines = [
        f"# {summary['question']}",
        "",
        *(f"- {name}: {text}" for name, text in summary["about"].items()),
        f"- {equal[summary['equal']]}",
        "- BLEU of the final checkpoint, greedy search; "
        f"{len(results)} of {len(summary['variants'])} are done.",
        "",
        f"| variant | parameters | updates | target tokens | hours | {loss}"
        + " | ".join([*corpora, "mean"])
        + " |",
        "| --- |" + " ---: |" * (5 + len(corpora) + bool(loss)),
    ]
    for variant in summary["variants"]:
        result = results.get(variant["name"])
        if result is None:
            cells = [""] * (5 + len(corpora) + bool(loss))
        else:
            cells = _cells(result, corpora, update, by_character)
        lines.append(f"| {variant['name']} | " + " | ".join(cells) + " |")
    if by_character:
        lines += _by_cpu_time(results)
    if summary["document_tokens"]:
        lines += _documents(summary)
    lines += [line for name in pictures(summary) for line in ("", f"![{_DRAWN}]({name})")]
    return "\n".join(lines) + "\n"


def files(summary: Mapping[str, Any]) -> dict[str, str]:
    """The files of the report, by name."""
    return {"report.md": render(summary), **pictures(summary)}


def pictures(summary: Mapping[str, Any]) -> dict[str, str]:
    """The report's plot as SVG, by file name: BLEU by pairs, where two variants have a number."""
    series = _by_pairs(summary)
    labels = ("training pairs", "BLEU")
    if not series:
        return {}
    return {"bleu-by-pairs.svg": curves.plot(series, summary["question"], labels, log_y=False)}


def _last_common_update(results: Results) -> str:
    """The last update after which all variants were validated; empty if there is none."""
    updates = [set(result.get("losses", {})) for result in results.values()]
    return max(set.intersection(*updates), key=int, default="") if updates else ""


def _cells(
    result: Mapping[str, Any], corpora: list[str], update: str, by_character: bool
) -> list[str]:
    scores = [result["bleu"][name] for name in corpora]
    losses = [result["losses"][update]] if update else []
    if by_character:  # of the last validation
        last = result["losses"][max(result["losses"], key=int)]
        losses.append(last * result["tokens_per_character"])
    return [
        f"{result['parameters'] / 1e6:.1f} million",
        f"{result['updates']:,}",
        f"{result['target_tokens'] / 1e6:.1f} million",
        f"{result['hours']:.1f}",
        *(f"{loss:.2f}" for loss in losses),
        *(f"{score:.1f}" for score in [*scores, sum(scores) / len(scores)]),
    ]


def _by_cpu_time(results: Results) -> list[str]:
    """The loss of a character at equal CPU times, between the validations by interpolation."""
    found = {name: _loss_by_cpu_minutes(result) for name, result in results.items()}
    if len(found) < 2 or not all(len(minutes) > 1 for minutes, _ in found.values()):
        return []
    first = max(minutes[0] for minutes, _ in found.values())
    last = min(minutes[-1] for minutes, _ in found.values())
    if first >= last:
        return []
    lines = [
        "",
        "## Loss of a character by CPU time",
        "",
        "| CPU minutes of training | " + " | ".join(found) + " |",
        "| ---: |" + " ---: |" * len(found),
    ]
    for minute in np.linspace(first, last, _CPU_TIMES):
        losses = [np.interp(minute, *curve) for curve in found.values()]
        lines.append(f"| {minute:.1f} | " + " | ".join(f"{loss:.3f}" for loss in losses) + " |")
    return lines


def _loss_by_cpu_minutes(result: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """The CPU minutes of the validations, rising, and the losses; empty where none were counted."""
    times = result.get("cpu_seconds", {})
    updates = sorted(times, key=int)
    share = result["tokens_per_character"]
    return [times[u] / 60 for u in updates], [result["losses"][u] * share for u in updates]


def _documents(summary: Mapping[str, Any]) -> list[str]:
    results: Results = summary["results"]
    names = sorted({name for result in results.values() for name in result["documents"]})
    kinds = ("sentence BLEU", "document BLEU, by sentence", "document BLEU, whole")
    lines = [
        "",
        "## Documents",
        "",
        f"Runs of sentences of one document with at most {summary['document_tokens']:,} tokens. "
        "Whole: in one piece; by sentence: one at a time, then joined. Multiplications are those "
        "that a network needs for a run of that length, without the masked ones.",
        "",
        "| variant | billion multiplications | "
        + " | ".join(f"{name}: {kind}" for name in names for kind in kinds)
        + " |",
        "| --- |" + " ---: |" * (1 + len(names) * len(kinds)),
    ]
    for variant in summary["variants"]:
        cost = variant["multiplications"] / 1e9
        found = results.get(variant["name"], {}).get("documents", {})
        cells = [f"{found[n][k]:.1f}" if n in found else "" for n in names for k in kinds]
        lines.append(f"| {variant['name']} | {cost:.2f} | " + " | ".join(cells) + " |")
    return lines


def _by_pairs(summary: Mapping[str, Any]) -> dict[str, curves.Points]:
    """BLEU of each corpus by number of pairs, where at least two variants have one."""
    results: Results = summary["results"]
    done = [
        (variant["pairs"], results[variant["name"]])
        for variant in summary["variants"]
        if variant["pairs"] and variant["name"] in results
    ]
    if len(done) < 2:
        return {}
    done.sort(key=lambda item: item[0])
    names = sorted(done[0][1]["bleu"])
    return {name: [(pairs, result["bleu"][name]) for pairs, result in done] for name in names}

"""The report on a plan's trainings: tables of BLEU, and a plot against numbers of pairs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import curves
from bench.trainings.plan import TrainingPlan, variant_multiplications

Results = Mapping[str, Mapping[str, Any]]


def write_report(plan: TrainingPlan, results: Results, folder: Path) -> None:
    """Write report.md, report.json and, for numbers of pairs, bleu-by-pairs.svg into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = markdown(plan, results)
    if series := _by_pairs(plan, results):
        labels = ("training pairs", "BLEU")
        picture = curves.plot(series, plan.question, labels, log_y=False)
        (folder / "bleu-by-pairs.svg").write_text(picture, encoding="utf-8")
        lines += ["", "![BLEU by training pairs](bleu-by-pairs.svg)"]
    (folder / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    summary = json.dumps({"question": plan.question, "results": results}, indent=1)
    (folder / "report.json").write_text(summary + "\n", encoding="utf-8")


def markdown(plan: TrainingPlan, results: Results) -> list[str]:
    """The tables, a line a variant; a variant that has no result yet has empty cells."""
    equal = {
        "updates": "All variants had as many updates.",
        "multiplications": "All variants had as many multiplications, in pairs of "
        f"{plan.document_tokens:,} tokens a side.",
        "nothing": "Each variant had as many updates as suit it.",
    }
    corpora = sorted({name for result in results.values() for name in result["bleu"]})
    lines = [
        f"# {plan.question}",
        "",
        f"{equal[plan.equal]} BLEU of the final checkpoint, greedy search; "
        f"{len(results)} of {len(plan.variants)} are done.",
        "",
        "| variant | parameters | updates | target tokens | hours | "
        + " | ".join([*corpora, "mean"])
        + " |",
        "| --- |" + " ---: |" * (5 + len(corpora)),
    ]
    for variant in plan.variants:
        result = results.get(variant.name)
        lines.append(f"| {variant.name} | " + " | ".join(_cells(result, corpora)) + " |")
    if plan.document_tokens:
        lines += _documents(plan, results)
    return lines


def _cells(result: Mapping[str, Any] | None, corpora: list[str]) -> list[str]:
    if result is None:
        return [""] * (5 + len(corpora))
    scores = [result["bleu"][name] for name in corpora]
    return [
        f"{result['parameters'] / 1e6:.1f} million",
        f"{result['updates']:,}",
        f"{result['target_tokens'] / 1e6:.1f} million",
        f"{result['hours']:.1f}",
        *(f"{score:.1f}" for score in [*scores, sum(scores) / len(scores)]),
    ]


def _documents(plan: TrainingPlan, results: Results) -> list[str]:
    names = sorted({name for result in results.values() for name in result["documents"]})
    kinds = ("sentence BLEU", "document BLEU, by sentence", "document BLEU, whole")
    lines = [
        "",
        "## Documents",
        "",
        f"Runs of sentences of one document with at most {plan.document_tokens:,} tokens. Whole: "
        "in one piece; by sentence: one at a time, then joined. Multiplications are those that a "
        "network needs for a run of that length, without the masked ones.",
        "",
        "| variant | billion multiplications | "
        + " | ".join(f"{name}: {kind}" for name in names for kind in kinds)
        + " |",
        "| --- |" + " ---: |" * (1 + len(names) * len(kinds)),
    ]
    for variant in plan.variants:
        cost = variant_multiplications(variant, plan.document_tokens) / 1e9
        found = results.get(variant.name, {}).get("documents", {})
        cells = [f"{found[n][k]:.1f}" if n in found else "" for n in names for k in kinds]
        lines.append(f"| {variant.name} | {cost:.2f} | " + " | ".join(cells) + " |")
    return lines


def _by_pairs(plan: TrainingPlan, results: Results) -> dict[str, curves.Points]:
    """BLEU of each corpus by number of pairs, where at least two variants have one."""
    done = [(v.pairs, results[v.name]) for v in plan.variants if v.pairs and v.name in results]
    if len(done) < 2:
        return {}
    done.sort(key=lambda item: item[0])
    names = sorted(done[0][1]["bleu"])
    return {name: [(pairs, result["bleu"][name]) for pairs, result in done] for name in names}

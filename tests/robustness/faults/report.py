"""The report of a run of faults: a table by scenario."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

NAME = "faults"


def files(summary: Mapping[str, Any]) -> dict[str, str]:
    """The files of the report, by name."""
    return {"report.md": render(summary)}


def render(summary: Mapping[str, Any]) -> str:
    """The report of a summary, as Markdown."""
    rounds = summary["rounds"]
    calls = sum(each["right"] + each["cancelled"] for each in rounds)
    refused = sum(sum(each["refused"].values()) for each in rounds)
    finds = Counter(
        (each["scenario"], each["seed"], find) for each in rounds for find in each["finds"]
    )
    lines = [
        "# Faults under load",
        "",
        *(f"- {name}: {value}" for name, value in summary["about"].items()),
        "",
        f"{len(rounds)} rounds, {calls + refused + finds.total():,} calls: {calls:,} answered "
        f"right (bit for bit as in peace) or cancelled by their own client, {refused:,} refused "
        f"with a code that says whether to retry, {finds.total():,} finds.",
        "",
        "| scenario | what happens | rounds | answered right | refused | again after "
        "(median, most) | more memory (median, most) | finds |",
        "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for name, what in summary["scenarios"].items():
        if its := [each for each in rounds if each["scenario"] == name]:
            lines.append(_row(name, what, its))
    if finds:
        lines += ["", "## Finds", ""]
        lines += [
            f"- {name}, seed {seed}: {find} ({count} times)"
            for (name, seed, find), count in finds.items()
        ]
    return "\n".join([*lines, ""])


def _row(name: str, what: str, rounds: Sequence[Mapping[str, Any]]) -> str:
    refused: Counter[str] = Counter()
    for each in rounds:
        refused.update(each["refused"])
    codes = ", ".join(f"{count:,} {code}" for code, count in refused.most_common()) or "none"
    seconds = [each["recovery_seconds"] for each in rounds]
    memory = [each["more_memory"] / 2**20 for each in rounds]
    return (
        f"| {name} | {what} | {len(rounds)} | {sum(each['right'] for each in rounds):,} | {codes} "
        f"| {statistics.median(seconds):.1f} s, {max(seconds):.1f} s "
        f"| {statistics.median(memory):+.0f} MiB, {max(memory):+.0f} MiB "
        f"| {sum(len(each['finds']) for each in rounds)} |"
    )

"""The report of a run of the fuzzer, as Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.robustness.fuzz.server import DESCRIPTORS_BOUND, MEMORY_BOUND_BYTES, Footprint
from tests.robustness.fuzz.target import Tally
from tests.robustness.fuzz.targets import PARSERS, SERVED

NAME = "fuzz"
MENDED_FILE = Path(__file__).with_name("mended.tsv")
_FACTS = ("started_at", "minutes", "processor", "cpus", "python", "revision")
_MOST_OUTCOMES = 8


@dataclass(frozen=True)
class Fuzzing:
    """A run.

    Attributes:
        seed: random seed of its inputs.
        counts: number of planned inputs, by target.
        tallies: results of the inputs, by target; "server" for results of no single input.
        footprints: footprints of the server, before the attack and after each target.
        facts: facts about the machine and the run; plain JSON values.
    """

    seed: int
    counts: Mapping[str, int]
    tallies: Mapping[str, Tally]
    footprints: Sequence[Footprint]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_defects(self) -> int:
        """The number of different defects."""
        return sum(len(tally.defects) for tally in self.tallies.values())

    def to_dict(self) -> dict[str, Any]:
        """The run as plain JSON values; only inputs with findings are included."""
        whats = {name: each.what for name, each in {**SERVED, **PARSERS}.items()}  # type: ignore[attr-defined]
        return {
            "benchmark": NAME,
            "seed": self.seed,
            "facts": dict(self.facts),
            "targets": [
                {
                    "name": name,
                    "what": whats.get(name, "the server's log"),
                    "inputs": tally.num_inputs,
                    "outcomes": dict(tally.outcomes.most_common()),
                    "seconds": round(tally.seconds, 1),
                    "slowest_seconds": round(tally.slowest_seconds, 3),
                    "slowest_number": tally.slowest_number,
                    "found": [dataclasses.asdict(each) for each in tally.defects.values()],
                }
                for name, tally in self.tallies.items()
            ],
            "footprints": [dataclasses.asdict(each) for each in self.footprints],
            "mended": read_mended(),
        }


def read_mended(file: Path = MENDED_FILE) -> list[dict[str, str]]:
    """Defects that fuzzing has found, and their fixes: rows of a table, by its columns."""
    head, *rows = (
        line.split("\t") for line in file.read_text(encoding="utf-8").splitlines() if line
    )
    return [dict(zip(head, row, strict=True)) for row in rows]


def conclusion(fuzzing: Fuzzing) -> Iterator[str]:
    """Lines for the terminal: the findings, and the commands that reproduce each."""
    total = sum(tally.num_inputs for tally in fuzzing.tallies.values())
    for name, tally in fuzzing.tallies.items():
        for defect in tally.defects.values():
            yield f"FOUND in {name}, {defect.count} times: {defect.what}"
            yield from (f"    {line}" for line in defect.evidence.splitlines()[-12:])
            if defect.number >= 0:
                yield (
                    f"    again: python -m tests.robustness.fuzz.run --target {name} "
                    f"--seed {fuzzing.seed} --only {defect.number}"
                )
    if fuzzing.footprints:
        before, *after = fuzzing.footprints
        most = max((each.memory_bytes for each in after), default=before.memory_bytes)
        yield (
            f"memory of the server: {before.memory_bytes >> 20} MiB before, at most "
            f"{most >> 20} MiB after a target "
            f"(the bound is {MEMORY_BOUND_BYTES >> 20} MiB more than before)"
        )
    yield f"{total:,} inputs, {fuzzing.num_defects} defects"


def files(summary: Mapping[str, Any]) -> dict[str, str]:
    """The files of the report, by name."""
    return {"report.md": render(summary)}


def render(summary: Mapping[str, Any]) -> str:
    """The report of a summary, as Markdown."""
    targets = summary["targets"]
    total = sum(each["inputs"] for each in targets)
    num_found = sum(len(each["found"]) for each in targets)
    facts = {name: summary["facts"].get(name, "") for name in _FACTS}
    lines = [f"# Fuzzing {summary['name']}", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += [f"- seed: {summary['seed']}", "", "## Verdict", ""]
    lines += [f"{total:,} inputs; found in this run: {num_found}.", "", "## What was run", ""]
    lines += ["| target | inputs | slowest | what |", "| --- | ---: | ---: | --- |"]
    lines += [
        f"| {each['name']} | {each['inputs']:,} | {each['slowest_seconds']:.2f} s "
        f"| {each['what']} |"
        for each in targets
        if each["inputs"]
    ]
    lines += ["", "## What came back", "", "| target | outcomes |", "| --- | --- |"]
    lines += [
        f"| {each['name']} | {_outcomes(each['outcomes'])} |" for each in targets if each["inputs"]
    ]
    lines += ["", "## The server afterwards", ""]
    lines += _footprints(summary["footprints"])
    lines += ["", "## Found in this run", ""]
    lines += _found(summary["targets"]) or ["Nothing."]
    lines += ["", "## Found and mended before", ""]
    lines += ["| found | where | mended | test |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {each['found']} | {each['where']} | {each['mended']} | `{each['test']}` |"
        for each in summary["mended"]
    ]
    lines += [
        "",
        "Of a parser, time is CPU time of one input; of a server, time on the clock, with other "
        "inputs in progress beside it. Judged: no exception but the documented one, properties "
        "such as text that comes back untouched and tags that stay, the documented statuses only, "
        "errors in the shape of their front, no stack trace in an answer or in the log, 5 s and "
        "512 MiB for an input of a parser, 60 s for one of a server, a canary every second whose "
        "translation must be the same to the bit, and afterwards nothing in progress, memory at "
        f"most {MEMORY_BOUND_BYTES >> 20} MiB above that before, and at most {DESCRIPTORS_BOUND} "
        "more descriptors. `python -m tests.robustness.fuzz.run --target NAME --seed SEED "
        "--only NUMBER` makes one input again.",
        "",
    ]
    return "\n".join(lines)


def _outcomes(outcomes: Mapping[str, int]) -> str:
    shown = [f"{name} {count:,}" for name, count in list(outcomes.items())[:_MOST_OUTCOMES]]
    rest = sum(list(outcomes.values())[_MOST_OUTCOMES:])
    return ", ".join([*shown, *([f"others {rest:,}"] if rest else [])]).replace("|", "\\|")


def _footprints(footprints: Sequence[Mapping[str, Any]]) -> list[str]:
    if not footprints:
        return ["No server was attacked."]
    before, *after = footprints
    moments = [
        ("before", before),
        *((f"after target {n}", each) for n, each in enumerate(after, 1)),
    ]
    return [
        "| | memory | descriptors |",
        "| --- | ---: | ---: |",
        *(
            f"| {moment} | {each['memory_bytes'] / 2**20:,.0f} MiB | {each['num_descriptors']} |"
            for moment, each in moments
        ),
    ]


def _found(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        f"| {target['name']} | {each['what']} | {each['count']:,} | {each['number']} |"
        for target in targets
        for each in target["found"]
    ]
    return (
        ["| target | found | inputs | the first |", "| --- | --- | ---: | ---: |", *rows]
        if rows
        else []
    )

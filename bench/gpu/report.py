"""The report of a run on a GPU: `python -m bench.gpu.report RUN --output DIR --command "..."`.

RUN is the folder that `bench/gpu.sh` wrote. Parts that were not run are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.gpu.results import PointLog
from bench.recompute import REPORT_FILE, write_report, write_summary

# Lines that the tests print about their results.
_FINDING = re.compile(r"^[\d.]+%.*", re.MULTILINE)
_OUTCOME = re.compile(r"^(PASSED|FAILED) tests/gpu/\S+::(\S+?)(?: - .*)?$", re.MULTILINE)
_PACKAGES = ("python", "torch", "onnx", "onnxruntime-gpu")


def main(
    run: Annotated[Path, typer.Argument(help="The folder that bench/gpu.sh wrote.")],
    output: Annotated[Path, typer.Option(help="Folder of the report.")],
    date: Annotated[str, typer.Option(help="Day of the run.")],
    command: Annotated[str, typer.Option(help="The command that was run.")],
    note: Annotated[list[str] | None, typer.Option(help="A paragraph for the report.")] = None,
) -> None:
    """Make a report of a run."""
    output.mkdir(parents=True, exist_ok=True)
    found = summary(run, date=date, command=command, notes=note or [])
    write_summary(output, found)
    write_report(output)


def summary(run: Path, *, date: str, command: str, notes: Sequence[str]) -> dict[str, Any]:
    """All figures of a run."""
    facts = json.loads((run / "preflight.json").read_text(encoding="utf-8"))
    tests, findings = {}, []
    if (run / "tests.txt").exists():
        text = (run / "tests.txt").read_text(encoding="utf-8")
        tests = {name: outcome for outcome, name in _OUTCOME.findall(text)}
        findings = _FINDING.findall(text)
    return {
        "benchmark": "gpu",
        "date": date,
        "gpu": facts["gpu"],
        "versions": {name: facts[name].split()[0] for name in _PACKAGES if name in facts},
        "cores": facts["cores"],
        "command": command,
        "notes": list(notes),
        "tests": tests,
        "findings": findings,
        "steps": list(PointLog(run / "results" / "step.jsonl")),
    }


def files(found: Mapping[str, Any]) -> dict[str, str]:
    """The report of a summary."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    passed = [name for name, outcome in found["tests"].items() if outcome == "PASSED"]
    failed = [name for name, outcome in found["tests"].items() if outcome == "FAILED"]
    lines = [
        f"# {found['gpu']}",
        "",
        f"{found['date']}, {found['cores']} cores, {versions}.",
        "",
        f"    {found['command']}",
        "",
        *(line for note in found["notes"] for line in (note, "")),
        f"Tests: {len(passed)} passed, {len(failed)} failed.",
        "",
        *(f"- failed: `{name}`" for name in failed),
        *(f"- {line}" for line in found["findings"]),
        "",
        "| model | search | rows | CUDA graphs | step, ms: median, p90 | of many in flight, ms "
        "| encode, ms |",
        "| --- | --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for point in found["steps"]:
        lines.append(
            f"| {point['model']} | {point['search']} | {point['rows']} "
            f"| {'yes' if point['graphs'] else 'no'} "
            f"| {_ms(point['step_us'])}, {_ms(point['step_us_p90'])} "
            f"| {_ms(point['pipelined_us'])} | {_ms(point['encode_us'])} |"
        )
    return {REPORT_FILE: "\n".join((*lines, ""))}


def _ms(microseconds: float) -> str:
    return f"{microseconds / 1000.0:.2f}"


if __name__ == "__main__":
    typer.run(main)

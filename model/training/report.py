"""The report of a training run: report.md with its curves, curves.svg.

    python -m model.training.report RUN

writes both into the folder of a run, also while it trains, from its TensorBoard events and its
report.json. `dragoman train` does so itself after every validation.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from model.evaluation.chart import COLOURS, Chart, Series, charts_file
from model.training.log import REPORT_FILE, TENSORBOARD

PAGE_FILE, CURVES_FILE = "report.md", "curves.svg"
Curve = Sequence[tuple[float, float]]

_MOST_POINTS = 400


def write_training_report(output: Path) -> None:
    """Write report.md and curves.svg into the folder of a run that has been validated."""
    report = json.loads((output / REPORT_FILE).read_text(encoding="utf-8"))
    validations = report["validations"]
    curves = {
        "loss": {
            "training, smoothed": thinned(training_curve(output, "train/loss")),
            "validation": [(v["update"], v["loss"]) for v in validations],
        },
        "BLEU": {
            name: [(v["update"], v["corpora"][name]["bleu"]) for v in validations]
            for name in validations[-1]["corpora"]
        },
        "tokens a second": {"training": thinned(training_curve(output, "train/tokens_per_second"))},
    }
    charts = [
        Chart(title, "updates", "", _series(named), from_zero=False)
        for title, named in curves.items()
    ]
    (output / CURVES_FILE).write_text(charts_file(charts), encoding="utf-8")
    (output / PAGE_FILE).write_text(page(report["recipe"], validations), encoding="utf-8")


def _series(curves: Mapping[str, Curve]) -> list[Series]:
    kinds = [(kind, colour) for kind in ("line", "dashes") for colour in range(len(COLOURS))]
    return [
        Series(name, curve, *kinds[number % len(kinds)])
        for number, (name, curve) in enumerate(curves.items())
    ]


def training_curve(output: Path, name: str) -> list[tuple[float, float]]:
    """A scalar of the run's TensorBoard events, by update; empty if there is none yet."""
    logging.getLogger("tensorboard").setLevel(logging.WARNING)  # it logs every file that it reads
    events = EventAccumulator(str(output / TENSORBOARD), size_guidance={"scalars": 0})
    events.Reload()
    if name not in events.Tags()["scalars"]:
        return []
    return [(float(e.step), float(e.value)) for e in events.Scalars(name)]


def thinned(curve: Curve) -> list[tuple[float, float]]:
    """The means of neighbouring points, at most some hundred of them."""
    size = -(-len(curve) // _MOST_POINTS) or 1
    groups = [curve[i : i + size] for i in range(0, len(curve), size)]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def page(recipe: str, validations: Sequence[Mapping[str, Any]]) -> str:
    """The text of report.md: the curves, and a line a corpus for the last and the best validation.

    Args:
        validations: as in report.json, at least one.
    """
    last = validations[-1]
    best = max(validations, key=_mean_bleu)
    lines = [
        f"# Training run {recipe}",
        "",
        f"{len(validations)} validations up to update {last['update']:,}; mean BLEU "
        f"{_mean_bleu(last):.2f}, the best was {_mean_bleu(best):.2f} at update "
        f"{best['update']:,}. Validation loss {last['loss']:.3f}.",
        "",
        f"![Curves]({CURVES_FILE})",
        "",
        "| corpus | BLEU | chrF2 | BLEU at the best update |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, score in last["corpora"].items():
        before = best["corpora"][name]["bleu"]
        lines.append(f"| {name} | {score['bleu']:.1f} | {score['chrf']:.1f} | {before:.1f} |")
    return "\n".join(lines) + "\n"


def _mean_bleu(validation: Mapping[str, Any]) -> float:
    scores: list[float] = [score["bleu"] for score in validation["corpora"].values()]
    return sum(scores) / len(scores)


def main(run: Annotated[Path, typer.Argument(help="The folder of a training run.")]) -> None:
    """Write report.md and curves.svg into the folder of a run."""
    write_training_report(run)


if __name__ == "__main__":
    typer.run(main)

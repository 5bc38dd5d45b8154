"""How a training run went, as a page: report.md with its curves, curves.svg.

    python -m model.training.report RUN

writes both into the folder of a run, also while it trains, from its TensorBoard events and its
report.json. `dragoman train` does so itself after every validation.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Annotated, Any

import typer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from model.training.log import REPORT_FILE, TENSORBOARD

PAGE_FILE, CURVES_FILE = "report.md", "curves.svg"
Curve = Sequence[tuple[float, float]]

_WIDTH, _PLOT_HEIGHT, _LEFT, _RIGHT, _GAP = 860, 260, 60, 180, 60
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#17becf")
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
    (output / CURVES_FILE).write_text(svg(curves), encoding="utf-8")
    (output / PAGE_FILE).write_text(page(report["recipe"], validations), encoding="utf-8")


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


def svg(plots: Mapping[str, Mapping[str, Curve]]) -> str:
    """Plots below each other, each with curves by name over the number of updates."""
    height = len(plots) * (_PLOT_HEIGHT + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    for index, (title, curves) in enumerate(plots.items()):
        top = index * (_PLOT_HEIGHT + _GAP) + _GAP / 2
        parts += _plot(title, {name: curve for name, curve in curves.items() if curve}, top)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _plot(title: str, curves: Mapping[str, Curve], top: float) -> Iterable[str]:
    points = [point for curve in curves.values() for point in curve]
    right = _WIDTH - _RIGHT
    largest = max((x for x, _ in points), default=1.0)
    values = [y for _, y in points] or [0.0]
    low, high = min(values), max(values)
    high = high if high > low else low + 1.0

    def place(point: tuple[float, float]) -> str:
        x = _LEFT + (right - _LEFT) * point[0] / largest
        return f"{x:.1f},{top + _PLOT_HEIGHT * (high - point[1]) / (high - low):.1f}"

    yield f'<text x="{_LEFT}" y="{top - 8}" font-weight="bold">{escape(title)}</text>'
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y, x = top + _PLOT_HEIGHT * (1 - share), _LEFT + (right - _LEFT) * share
        yield f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#ddd"/>'
        value = low + (high - low) * share
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>'
        below = top + _PLOT_HEIGHT + 16
        update = f"{largest * share:,.0f}"
        yield f'<text x="{x:.1f}" y="{below:.1f}" text-anchor="middle">{update}</text>'
    for index, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        dash = ' stroke-dasharray="5 3"' if index >= len(_COLOURS) else ""
        line = " ".join(map(place, curve))
        yield f'<polyline points="{line}" fill="none" stroke="{colour}"{dash}/>'
        y = top + 12 + 16 * index
        yield f'<path d="M{right + 10} {y - 4:.1f}h18" stroke="{colour}"{dash}/>'
        yield f'<text x="{right + 34}" y="{y:.1f}">{escape(name)}</text>'


def main(run: Annotated[Path, typer.Argument(help="The folder of a training run.")]) -> None:
    """Write report.md and curves.svg into the folder of a run."""
    write_training_report(run)


if __name__ == "__main__":
    typer.run(main)

"""Draws the matrix of sinusoidal positions (section 3.5 of the paper).

    python -m model.evaluation.position_picture --output FILE.svg

A row is a position, a column one of the D numbers that are added to its embedding. The columns on
the left change from one position to the next, those on the right hardly within a sentence: like the
digits of a number, no two rows are the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from torch import Tensor

from model.network.positions import sinusoidal_positions

_CELL = 8
_LEFT, _TOP, _MARGIN = 56, 30, 40
_LEVELS = 17  # colours from -1 to 1
_LOW, _MIDDLE, _HIGH = (33, 102, 172), (247, 247, 247), (178, 24, 43)  # blue, white, red


def main(
    output: Annotated[Path, typer.Option(help="The file to write.")],
    length: Annotated[int, typer.Option(min=1, help="Positions.")] = 50,
    d_model: Annotated[int, typer.Option(min=2, help="Width D, an even number.")] = 64,
) -> None:
    """Write the picture as SVG."""
    if d_model % 2:
        raise typer.BadParameter(f"{d_model} is not even", param_hint="--d-model")
    output.write_text(position_picture(sinusoidal_positions(length, d_model)), encoding="utf-8")


def position_picture(table: Tensor) -> str:
    """An SVG file of a table [positions, D] of numbers from -1 to 1."""
    length, width = table.shape
    right, bottom = _LEFT + width * _CELL, _TOP + length * _CELL
    levels = ((table + 1) / 2 * (_LEVELS - 1)).round().int().tolist()
    # A path for each colour holds all its cells: a fifth of the size of a rectangle for each.
    strokes: list[list[str]] = [[] for _ in range(_LEVELS)]
    for row, colours in enumerate(levels):
        y = _TOP + row * _CELL + _CELL // 2
        for column, colour in enumerate(colours):
            strokes[colour].append(f"M{_LEFT + column * _CELL} {y}h{_CELL}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right + 70} {bottom + _MARGIN}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{right + 70}" height="{bottom + _MARGIN}" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="14">Sinusoidal positions, D = {width}</text>',
    ]
    parts += [
        f'<path stroke="{_colour(level)}" stroke-width="{_CELL}" d="{"".join(cells)}"/>'
        for level, cells in enumerate(strokes)
        if cells
    ]
    for row in range(0, length, 10):
        y = _TOP + row * _CELL + _CELL
        parts.append(f'<text x="{_LEFT - 6}" y="{y}" text-anchor="end">{row}</text>')
    for column in range(0, width, 8):
        x = _LEFT + column * _CELL + _CELL // 2
        parts.append(f'<text x="{x}" y="{bottom + 14}" text-anchor="middle">{column}</text>')
    place = f"translate(18 {(_TOP + bottom) / 2}) rotate(-90)"
    parts += [
        f'<text x="{(_LEFT + right) / 2}" y="{bottom + 32}" text-anchor="middle">column</text>',
        f'<text transform="{place}" text-anchor="middle">position</text>',
        *_scale(right + 16),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _scale(x: int) -> list[str]:
    """The colours from 1 down to -1, with their numbers."""
    cells = [
        f'<rect x="{x}" y="{_TOP + (_LEVELS - 1 - level) * _CELL}" width="12" height="{_CELL}" '
        f'fill="{_colour(level)}"/>'
        for level in range(_LEVELS)
    ]
    places = [(1, _LEVELS - 1), (0, _LEVELS // 2), (-1, 0)]
    return cells + [
        f'<text x="{x + 16}" y="{_TOP + (_LEVELS - 1 - level) * _CELL + _CELL}">{number}</text>'
        for number, level in places
    ]


def _colour(level: int) -> str:
    value = 2 * level / (_LEVELS - 1) - 1
    end = _HIGH if value > 0 else _LOW
    mixed = (round(m + abs(value) * (e - m)) for m, e in zip(_MIDDLE, end, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


if __name__ == "__main__":
    typer.run(main)

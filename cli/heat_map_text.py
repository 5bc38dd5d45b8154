"""Draws heat maps in a terminal, with blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from cli.heat_map import JOINERS, HeatMap, visible

_BLOCKS = " ░▒▓█"
_CELL = 2  # columns of the terminal: a wide character fits
_MAX_LABEL = 20


def text(picture: HeatMap, width: int) -> str:
    """The picture as lines, for a terminal of `width` columns; split where it is too wide."""
    labels = [_clipped(label) for label in picture.rows]
    margin = max(map(cell_len, labels), default=0) + 1
    at_a_time = max(1, (width - margin) // _CELL)
    largest = picture.largest
    parts = [picture.title, f"rows: {picture.row_title}; columns: {picture.column_title}"]
    for start in range(0, len(picture.columns), at_a_time):
        some = slice(start, start + at_a_time)
        lines = [" " * margin + line for line in _upright(picture.columns[some])]
        for label, weights in zip(labels, picture.weights, strict=True):
            cells = "".join(_block(weight, largest) * _CELL for weight in weights[some])
            lines.append(" " * (margin - 1 - cell_len(label)) + label + " " + cells)
        parts.append("\n".join(line.rstrip() for line in lines))
    levels = len(_BLOCKS) - 1
    scale = (f"{block} {number / levels * largest:.2f}" for number, block in enumerate(_BLOCKS))
    parts.append("   ".join(scale).lstrip())
    return "\n\n".join(parts)


def _block(weight: float, largest: float) -> str:
    return _BLOCKS[round(weight / (largest or 1.0) * (len(_BLOCKS) - 1))]


def _upright(labels: Sequence[str]) -> Iterator[str]:
    """Labels from top to bottom, which end in the same line."""
    columns = [_characters(_clipped(label)) for label in labels]
    height = max(map(len, columns), default=0)
    for line in range(height):
        yield "".join(_at(column, line - (height - len(column))) for column in columns)


def _at(column: Sequence[str], place: int) -> str:
    character = column[place] if place >= 0 else ""
    return character + " " * (_CELL - cell_len(character))


def _characters(label: str) -> list[str]:
    """Characters with the marks that combine with them."""
    found: list[str] = []
    for character in label:
        if found and cell_len(character) == 0:
            found[-1] += character
        else:
            found.append(character)
    return found


def _clipped(label: str) -> str:
    """A label that is printable and not too long."""
    shown = "".join(character for character in visible(label) if character not in JOINERS)
    while cell_len(shown) > _MAX_LABEL:
        shown = shown[:-2] + "\u2026" if shown.endswith("\u2026") else shown[:-1] + "\u2026"
    return shown

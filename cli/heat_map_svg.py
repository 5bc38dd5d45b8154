"""Draws heat maps as SVG, and SVG as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from rich.cells import cell_len

from cli.heat_map import HeatMap, visible

_CELL = 22
_GAP = 8  # between labels and cells
_CHARACTER = 7.6  # width of a cell of text at 13 pixels, on average
_LEVELS = 33  # colours from 0 to the largest weight
_MAX_LABEL = 24  # cells of text
# By name, since resvg's own idea of sans-serif is Arial, which few servers have.
_FONTS = "Noto Sans, DejaVu Sans, Liberation Sans, Arial, Helvetica, sans-serif"
# From white to dark blue; brightness falls all the way, so that it prints in grey, too.
_STOPS = ((255, 255, 255), (198, 219, 239), (107, 174, 214), (33, 113, 181), (8, 48, 107))


def svg(picture: HeatMap) -> str:
    """An SVG file: rows are queries, from the top; columns are keys."""
    rows, columns = list(map(_label, picture.rows)), list(map(_label, picture.columns))
    left = 40 + _GAP + _width(rows)
    top = 62 + _GAP + _width(columns)
    right, bottom = left + _CELL * len(columns), top + _CELL * len(rows)
    width = max(right + 90, 30 + _CHARACTER * cell_len(picture.title))
    height = max(bottom + 24, top + 190)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="{_FONTS}" font-size="13">',
        f"<title>{escape(picture.title)}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="20" y="24" font-size="15">{escape(picture.title)}</text>',
        *_cells(picture, left, top),
        f'<rect x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" '
        'fill="none" stroke="#999"/>',
    ]
    middle = _CELL // 2 + 4
    for number, label in enumerate(rows):
        y = top + number * _CELL + middle
        parts.append(f'<text x="{left - _GAP}" y="{y}" text-anchor="end">{escape(label)}</text>')
    for number, label in enumerate(columns):
        place = f"translate({left + number * _CELL + middle} {top - _GAP}) rotate(-90)"
        parts.append(f'<text transform="{place}">{escape(label)}</text>')
    side = f"translate(20 {(top + bottom) / 2:.0f}) rotate(-90)"
    parts += [
        f'<text x="{(left + right) / 2:.0f}" y="48" text-anchor="middle" fill="#666">'
        f"{escape(picture.column_title)}</text>",
        f'<text transform="{side}" text-anchor="middle" fill="#666">'
        f"{escape(picture.row_title)}</text>",
        *_scale(right + 20, top, picture.largest),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class NoFontsError(RuntimeError):
    """The system has none of the fonts: a PNG would have no labels."""


def png(drawing: str, zoom: float = 2.0) -> bytes:
    """An SVG file as PNG, with the fonts of the system.

    Raises:
        ModuleNotFoundError: the package `resvg_py` is missing.
        NoFontsError: there is no font.
    """
    import resvg_py

    frame = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">{}</svg>'
    letter = frame.format(f'<text y="9" font-family="{_FONTS}">x</text>')
    blank, drawn = (resvg_py.svg_to_bytes(svg_string=one) for one in (frame.format(""), letter))
    if blank == drawn:
        raise NoFontsError(f"none of these fonts is installed: {_FONTS}")
    return bytes(resvg_py.svg_to_bytes(svg_string=drawing, zoom=zoom))


def _cells(picture: HeatMap, left: int, top: int) -> list[str]:
    """A path for each colour, with all its cells: a fifth of the size of a rectangle for each."""
    strokes: list[list[str]] = [[] for _ in range(_LEVELS)]
    for row, weights in enumerate(picture.weights):
        y = top + row * _CELL + _CELL // 2
        for column, weight in enumerate(weights):
            level = round(weight / (picture.largest or 1.0) * (_LEVELS - 1))
            strokes[level].append(f"M{left + column * _CELL} {y}h{_CELL}")
    return [
        f'<path stroke="{_colour(level)}" stroke-width="{_CELL}" d="{"".join(cells)}"/>'
        for level, cells in enumerate(strokes)
        if cells and level
    ]


def _scale(x: int, top: int, largest: float) -> list[str]:
    """The colours from the largest weight down to 0, with numbers."""
    step, height = 4, 4 * _LEVELS
    cells = [
        f'<rect x="{x}" y="{top + (_LEVELS - 1 - level) * step}" width="14" height="{step}" '
        f'fill="{_colour(level)}"/>'
        for level in range(_LEVELS)
    ]
    numbers = [
        f'<text x="{x + 20}" y="{top + height * (1 - share) + 4:.0f}">{largest * share:.2f}</text>'
        for share in (1.0, 0.5, 0.0)
    ]
    frame = f'<rect x="{x}" y="{top}" width="14" height="{height}" fill="none" stroke="#999"/>'
    return [*cells, frame, *numbers]


def _colour(level: int) -> str:
    place = level / (_LEVELS - 1) * (len(_STOPS) - 1)
    index = min(int(place), len(_STOPS) - 2)
    low, high, share = _STOPS[index], _STOPS[index + 1], place - index
    mixed = (round(a + (b - a) * share) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _width(labels: Sequence[str]) -> int:
    return round(_CHARACTER * max(map(cell_len, labels), default=0))


def _label(text: str) -> str:
    """A label that XML can hold, and that is not too long."""
    shown = visible(text)
    while cell_len(shown) > _MAX_LABEL:
        shown = shown[:-2] + "\u2026" if shown.endswith("\u2026") else shown[:-1] + "\u2026"
    return shown

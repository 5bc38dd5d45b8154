"""Parsing of the numbers of `dragoman plan`; errors name the option."""

from __future__ import annotations

import math
import re

from bench.load.errors import PlanError
from bench.load.units import parse_duration

_PRICE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(?:\s*/\s*core-hour)?")


def parse_price(text: str) -> float:
    """The price of a core for an hour: "0.05/core-hour", or a number.

    Raises:
        PlanError: it is no such price.
    """
    match = _PRICE.fullmatch(text.strip())
    if match is None:
        raise PlanError(f"--price: {text!r} is not a price such as 0.05/core-hour")
    return float(match[1])


def parse_target(text: str, name: str) -> float:
    """Seconds of a duration above 0 with its unit, such as 500ms or 2s.

    Raises:
        PlanError: it is no such duration.
    """
    # A number without a unit would be seconds, where a reader may have meant milliseconds.
    if re.fullmatch(r"[\d.\s]*", text):
        raise PlanError(f"{name}: {text!r} needs a unit, such as 500ms or 2s")
    seconds = parse_duration(text, name)
    if seconds <= 0.0:
        raise PlanError(f"{name} must be above 0, not {text!r}")
    return seconds


def check_at_least(name: str, value: float, least: float, *, above: bool = False) -> None:
    """Check a number of an option.

    Raises:
        PlanError: it is below `least` (with `above`, not above it), infinite, or not a number.
    """
    if not math.isfinite(value) or value < least or (above and value == least):
        bound = "above" if above else "at least"
        raise PlanError(f"{name} must be {bound} {least:g}, not {value:g}")

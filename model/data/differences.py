"""The first difference between two settings of plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def first_difference(saved: Any, present: Any, path: str = "") -> str | None:
    """The dotted name of the first field that differs, with both values; None without any."""
    if isinstance(saved, Mapping) and isinstance(present, Mapping):
        for key in sorted({*saved, *present}):
            name = f"{path}.{key}" if path else str(key)
            found = first_difference(saved.get(key), present.get(key), name)
            if found is not None:
                return found
        return None
    return None if saved == present else f"{path} ({saved}, now {present})"

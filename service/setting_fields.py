"""The fields of the settings: their documentation, their ranges, and the check of a value."""

from __future__ import annotations

import dataclasses
import re
from typing import Any


def setting(
    default: Any,
    text: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    pattern: str = "",
    is_optional: bool = False,
) -> Any:
    """A dataclass field with its documentation and its range.

    A text that `is_optional` is empty by default. An empty value that is set explicitly is an
    error, since it would silently turn the feature off.
    """
    metadata = {"help": text, "minimum": minimum, "maximum": maximum, "choices": choices}
    metadata |= {"pattern": pattern, "is_optional": is_optional}
    return dataclasses.field(default=default, metadata=metadata)


def check(field: dataclasses.Field[Any], value: Any) -> None:
    """Raise ValueError for a value of the wrong type or out of range."""
    kind = type(field.default)
    if kind is tuple:
        return
    if type(value) is not kind:
        raise ValueError(f"must be {describe(kind)}, not {value!r}")
    choices, low, high = (field.metadata[key] for key in ("choices", "minimum", "maximum"))
    if choices and value not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}, not {value!r}")
    if kind is str and not value and not field.metadata["is_optional"]:
        raise ValueError("must not be empty")
    if (pattern := field.metadata["pattern"]) and not re.fullmatch(pattern, str(value)):
        raise ValueError(f"must be cpu, cuda, or one of several GPUs as cuda:1, not {value!r}")
    if low is not None and not low <= value <= high:
        raise ValueError(f"must be from {low:,} to {high:,}, not {value!r}")


def describe(kind: type) -> str:
    """The name of a type, for messages."""
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return names[kind]

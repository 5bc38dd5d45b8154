"""Divides a sequence into portions of a bounded size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def portions(
    items: Iterable[T], most: int, *, size_of: Callable[[Any], int] = len, count: float = math.inf
) -> Iterator[list[T]]:
    """Divide items, in order, into portions of at most a size and a count, or of one item.

    Args:
        most: the largest sum of the sizes of a portion.
        size_of: the size of an item; by default its length.
        count: most items of a portion.
    """
    portion: list[T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if portion and (len(portion) == count or total + size > most):
            yield portion
            portion, total = [], 0
        portion.append(item)
        total += size
    if portion:
        yield portion

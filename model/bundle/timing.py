"""Measures, at a low cost, which choice makes a step fastest."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

_MIN_ROUNDS, _MAX_ROUNDS = 3, 5
_ENOUGH_SECONDS = 3.0  # after which the fewest rounds are enough
_CLEARLY_SLOWER = 2.0

Choice = TypeVar("Choice")


def time_choices(
    step: Callable[[], object],
    choices: Sequence[Choice],
    choose: Callable[[Choice], object],
    *,
    drop_slow: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Choice, float]:
    """The median seconds of a step with each of `choices`.

    Choices take turns, so that a change of the machine's load meets all of them.

    Args:
        step: function to time; its first run with each choice is not counted.
        choose: makes the following steps use a choice.
        drop_slow: try a choice no more once it is clearly slower than the fastest; otherwise it
            would cost more than all the others. Processes that step together must not do this.
    """
    runs: dict[Choice, list[float]] = {choice: [] for choice in choices}
    began = clock()
    for round_number in range(1 + _MAX_ROUNDS):
        if round_number > _MIN_ROUNDS and clock() - began > _ENOUGH_SECONDS:
            break
        for choice in _likely(runs) if drop_slow else choices:
            choose(choice)
            started = clock()
            step()
            if round_number > 0:
                runs[choice].append(clock() - started)
    return {choice: statistics.median(taken) for choice, taken in runs.items()}


def _likely(runs: dict[Choice, list[float]]) -> list[Choice]:
    if not all(runs.values()):
        return list(runs)
    limit = _CLEARLY_SLOWER * min(statistics.median(taken) for taken in runs.values())
    return [choice for choice, taken in runs.items() if min(taken) <= limit]

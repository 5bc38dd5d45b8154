"""Chooses PyTorch's number of CPU threads by measurement, since more are often slower.

The threads of one operator wait for each other. Where another process has one of the cores, every
operator takes as long as that thread has to wait for it: on a busy machine all cores can take ten
times as long as one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import torch

from model.bundle.processor import num_usable_cores
from model.bundle.timing import time_choices

logger = logging.getLogger(__name__)

_ENVIRONMENT = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_WORTH_A_THREAD = 1.05  # fewer threads are preferred unless more are faster by this factor


def choose_threads(step: Callable[[], object], what: str, threads: int = 0) -> int:
    """Set the number of PyTorch's threads, and log it with its reason in one line.

    Args:
        step: function that does the work once, with its real shapes.
        what: name of the work for the log, such as "a batch".
        threads: the number that was asked for; 0 takes OMP_NUM_THREADS or MKL_NUM_THREADS where
            one of them is set, and measures otherwise.

    Returns:
        The number of threads.
    """
    given = next((name for name in _ENVIRONMENT if os.environ.get(name)), None)
    if threads:
        torch.set_num_threads(threads)
    elif given is not None:
        logger.info("threads: %d, as %s says", torch.get_num_threads(), given)
    elif len(counts := candidates(num_usable_cores())) > 1:
        seconds = time_choices(step, counts, torch.set_num_threads)
        torch.set_num_threads(fastest(seconds))
        logger.info(
            "threads: %d, measured (%s); --threads sets another number",
            torch.get_num_threads(),
            ", ".join(f"{taken:.2g} s {what} with {count}" for count, taken in seconds.items()),
        )
    return torch.get_num_threads()


def candidates(num_cores: int) -> list[int]:
    """The numbers to try, ascending: one, half of the cores, all of them."""
    return sorted({1, max(1, num_cores // 2), num_cores})


def fastest(seconds: dict[int, float]) -> int:
    """The number of threads to use: more only where that is faster by a twentieth."""
    best = min(seconds)
    for count in sorted(seconds):
        if seconds[count] * _WORTH_A_THREAD < seconds[best]:
            best = count
    return best

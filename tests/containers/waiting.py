"""Waiting for other processes."""

import time
from collections.abc import Callable
from typing import Any


def eventually(check: Callable[[], Any], what: str, seconds: float = 240.0) -> Any:
    """The first true value of `check`, asked again and again: of other processes, over HTTP."""
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.2)
    return found

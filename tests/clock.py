"""A clock for tests of what takes time."""

from __future__ import annotations


class Clock:
    """A time that passes only when the test says so."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

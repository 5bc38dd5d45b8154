"""A requirement of a benchmark, and whether it holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Criterion:
    """One requirement that a benchmark checks.

    Attributes:
        kept: whether it holds; None if there are too few samples to say.
        found: measured value.
    """

    what: str
    kept: bool | None
    found: str = ""

    def __str__(self) -> str:
        verdict = {True: "kept", False: "**BROKEN**", None: "not known"}[self.kept]
        return f"{verdict}: {self.what}" + (f" ({self.found})" if self.found else "")

"""Measured points in a file, one JSON object a line; no point is measured twice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class PointLog:
    """The measured points of one part of the benchmark.

    Attributes:
        seconds: time after which no further point is started.
    """

    file: Path
    seconds: float = float("inf")
    _started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All points so far, without a truncated last line."""
        if not self.file.exists():
            return
        for line in self.file.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue

    def wants(self, **point: Any) -> bool:
        """Whether a point is still to be measured, and there is time."""
        if any(all(found.get(k) == v for k, v in point.items()) for found in self):
            return False
        if time.monotonic() - self._started > self.seconds:
            print(
                f"{self.file.stem}: no time left for {point}; the same command resumes", flush=True
            )
            return False
        print(f"{self.file.stem}: {point}", flush=True)
        return True

    def add(self, **point: Any) -> None:
        """Write a point, and show its figures."""
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(point) + "\n")
        figures = {name: value for name, value in point.items() if isinstance(value, float)}
        print("  " + ", ".join(f"{name} {figures[name]:,.1f}" for name in figures), flush=True)

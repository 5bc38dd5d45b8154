"""A scorer without a model, at a real seam like `FakeRunner`: its answers are easy to predict."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from service.domain.plan import ScoreItem, TargetScore


class FakeScorer:
    """Scores each token with -1/(1 + its id), and aligns token t with position t.

    Attributes:
        items: scored items so far, in a list for each call.
        num_prepared: number of calls of `prepare`.
        failures: errors that the next calls of `score` or `prepare` raise.
        may_score: event; while it is cleared, every call of `score` waits.
        is_scoring: event, set while a call is in flight.
    """

    def __init__(self) -> None:
        self.items: list[list[ScoreItem]] = []
        self.num_prepared = 0
        self.failures: list[Exception] = []
        self.may_score = threading.Event()
        self.may_score.set()
        self.is_scoring = threading.Event()

    def prepare(self, graph: str = "scoring") -> None:
        """Record the call."""
        if self.failures:
            raise self.failures.pop(0)
        self.num_prepared += 1

    def score(self, items: Sequence[ScoreItem]) -> list[TargetScore]:
        """The result of `predict` for each item."""
        assert self.num_prepared, "scored without prepare()"
        self.is_scoring.set()
        self.may_score.wait()
        self.is_scoring.clear()
        if self.failures:
            raise self.failures.pop(0)
        self.items.append(list(items))
        return [self.predict(item) for item in items]

    def predict(self, item: ScoreItem) -> TargetScore:
        """The expected score: half of each row's attention at t, the rest everywhere."""
        num_source, num_target = len(item.source_ids), len(item.target_ids)
        attention = np.full((num_target, num_source), 0.5 / num_source, np.float32)
        places = np.minimum(np.arange(num_target), num_source - 1)
        attention[np.arange(num_target), places] += 0.5
        ids = np.array(item.target_ids, np.float32)
        return TargetScore(-1.0 / (1.0 + ids), attention)

"""Metrics of the life cycles of models."""

from __future__ import annotations

import time
from collections.abc import Callable

from service.models.lifecycle.interface import LifecycleObserver, ModelState
from service.observability.metrics import ServerMetrics

_RESULTS = {True: "success", False: "failure"}


class LifecycleMetrics(LifecycleObserver):
    """Counts reloads, wakes and restarts, and exports the models' states."""

    def __init__(self, metrics: ServerMetrics) -> None:
        self._metrics = metrics

    def on_start(self, model: str, state: Callable[[], ModelState]) -> None:
        """Create all series of the model: a rate misses the first event of a late series."""
        metrics = self._metrics
        for each in ModelState:
            gauge = metrics.model_state.labels(model, each.value)
            gauge.set_function(lambda each=each: float(state() is each))  # type: ignore[misc]
        for result in _RESULTS.values():
            metrics.reloads.labels(model, result)
            metrics.wakes.labels(model, result)
            metrics.restarts.labels(model, result)
        metrics.last_reload_successful.labels(model).set(1)
        metrics.last_load.labels(model).set(time.time())

    def on_reload(self, model: str, *, succeeded: bool) -> None:
        """Count a reload, and record whether it succeeded."""
        metrics = self._metrics
        metrics.reloads.labels(model, _RESULTS[succeeded]).inc()
        metrics.last_reload_successful.labels(model).set(succeeded)
        if succeeded:
            metrics.last_load.labels(model).set(time.time())

    def on_unchanged(self, model: str) -> None:
        """Record that what is served is what was asked for, as after a bad bundle was put back."""
        self._metrics.last_reload_successful.labels(model).set(1)

    def on_wake(self, model: str, *, succeeded: bool) -> None:
        """Count a wake, by result."""
        self._metrics.wakes.labels(model, _RESULTS[succeeded]).inc()

    def on_restart(self, model: str, *, succeeded: bool) -> None:
        """Count a restart, by result."""
        self._metrics.restarts.labels(model, _RESULTS[succeeded]).inc()

"""The life cycle's interfaces: a version of a model, and an observer of its events."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, Self

from service.engine.interface import EngineObserver, ServableEngine


class ModelState(enum.Enum):
    """The state of a model in a running server."""

    SERVING = "serving"
    ASLEEP = "asleep"  # without a process; the next call wakes the model
    LOADING = "loading"  # being woken or restarted; calls wait


class ModelVersion(Protocol):
    """A version of a model: `service.models.registry.ServedModel`."""

    @property
    def name(self) -> str:
        """Name of the model, which all of its versions share."""
        ...

    @property
    def version(self) -> str:
        """Version of the weights."""
        ...

    @property
    def engine(self) -> ServableEngine:
        """The engine that runs the model."""
        ...

    @property
    def observer(self) -> EngineObserver:
        """The observer of the engine's events."""
        ...

    @property
    def bundle(self) -> Path | None:
        """The bundle's directory; None without a bundle."""
        ...

    @property
    def reopen(self) -> Callable[[Path, bool], Self] | None:
        """A function that opens a bundle as another version of the model, in a new process.

        It opens the bundle at a low priority if the second argument is True, and is called in a
        thread. None if the model can be neither replaced nor put to sleep.
        """
        ...

    @property
    def has_own_process(self) -> bool:
        """Whether its engine runs in a process of its own, whose end leaves nothing behind."""
        ...

    def is_changed(self) -> bool:
        """Whether the bundle in the directory has changed. Called in a thread."""
        ...

    def lacks(self, other: Self) -> list[str]:
        """Directions that only `other` translates, such as "en to de"."""
        ...

    async def warm_up(self) -> None:
        """Translate something short with the started engine.

        Raises:
            DragomanError: a translation fails.
        """
        ...


class LifecycleObserver:
    """Receives events of life cycles. The methods do nothing; subclasses override some of them."""

    def on_start(self, model: str, state: Callable[[], ModelState]) -> None:
        """Called when a model starts; `state` returns its state and may be called in any thread."""

    def on_reload(self, model: str, *, succeeded: bool) -> None:
        """Called when a new version took over or was refused."""

    def on_unchanged(self, model: str) -> None:
        """Called when a reload has found the bundle that is served already."""

    def on_wake(self, model: str, *, succeeded: bool) -> None:
        """Called when a sleeping model was opened for a call or could not be opened."""

    def on_restart(self, model: str, *, succeeded: bool) -> None:
        """Called when a model whose engine had ended was opened again or could not be opened."""

"""The life cycle's interfaces: what it needs of a version of a model, and what it reports."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, Self

from service.engine.interface import EngineObserver, ServableEngine


class ModelState(enum.Enum):
    """The state of a model in a running server."""

    SERVING = "serving"
    ASLEEP = "asleep"  # without a process; the next call wakes it
    LOADING = "loading"  # being woken; calls wait


class ModelVersion(Protocol):
    """A version of a model: `service.models.registry.ServedModel`."""

    @property
    def name(self) -> str:
        """The model's name, which all of its versions share."""
        ...

    @property
    def version(self) -> str:
        """The version of its weights."""
        ...

    @property
    def engine(self) -> ServableEngine:
        """Runs it."""
        ...

    @property
    def observer(self) -> EngineObserver:
        """Receives its engine's events."""
        ...

    @property
    def bundle(self) -> Path | None:
        """The directory that it was opened from; None if there is none."""
        ...

    @property
    def reopen(self) -> Callable[[Path, bool], Self] | None:
        """Opens a bundle as another version of the same model, in a process of its own.

        At a low priority if its second argument is True. Called in a thread. None if the model can
        be neither replaced nor put to sleep.
        """
        ...

    def is_changed(self) -> bool:
        """Whether the bundle in its directory is another one by now. Called in a thread."""
        ...

    def lacks(self, other: Self) -> list[str]:
        """Directions that `other` translates and this version does not, as "en to de"."""
        ...

    async def warm_up(self) -> None:
        """Translate something short with the started engine.

        Raises:
            DragomanError: it fails.
        """
        ...


class LifecycleObserver:
    """Receives what happens to models; ignores what a subclass does not handle."""

    def on_start(self, model: str, state: Callable[[], ModelState]) -> None:
        """A model serves; `state` returns its state and may be called from any thread."""

    def on_reload(self, model: str, *, succeeded: bool) -> None:
        """A new version took over, or was refused."""

    def on_wake(self, model: str, *, succeeded: bool) -> None:
        """A sleeping model was opened for a call, or could not be."""

"""Versions of a model without bundles: scripted engines, opened from named places."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from service.engine.engine import Engine
from service.engine.interface import EngineObserver
from service.errors import DragomanError
from service.models.lifecycle.model_lifecycle import ModelLifecycle
from tests.fake_runner import FakeRunner


@dataclass
class Place:
    """A directory that a version can be opened from.

    Attributes:
        version: version in the directory.
        error: reason why it can't be opened.
        num_errors: number of times that opening fails with the error; None for always.
        defect: error of the warm-up.
        dies: whether the engine ends in the warm-up.
        lost: directions that it lacks.
        may_open: event; while it is cleared, opening waits.
        is_opening: event, set when opening begins.
    """

    version: str
    error: Exception | None = None
    num_errors: int | None = None
    defect: DragomanError | None = None
    dies: bool = False
    lost: list[str] = field(default_factory=list)
    may_open: threading.Event = field(default_factory=threading.Event)
    is_opening: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_open.set()


@dataclass(eq=False)
class FakeVersion:
    """A `ModelVersion` with an engine that runs a `FakeRunner`."""

    place: Place
    bundle: Path | None
    reopen: Callable[[Path, bool], FakeVersion] | None
    name: str = "fake"
    has_own_process: bool = True
    observer: EngineObserver = field(default_factory=EngineObserver)
    runner: FakeRunner = field(default_factory=FakeRunner)

    def __post_init__(self) -> None:
        self.version = self.place.version
        self.engine = Engine.of_runner(self.runner)

    @property
    def is_running(self) -> bool:
        """Whether the runner of its engine is open."""
        return not self.runner.closed

    def die(self) -> None:
        """End the engine, as the death of its process does."""
        self.engine.abandon()
        self.runner.closed = True

    def is_changed(self) -> bool:
        """Whether its place has another version."""
        return self.place.version != self.version

    def lacks(self, other: FakeVersion) -> list[str]:
        """The directions given in its place."""
        return self.place.lost

    async def warm_up(self) -> None:
        """Succeed or fail, depending on its place."""
        if self.place.dies:
            self.die()
            self.engine.admit(1)  # as any call then
        if self.place.defect is not None:
            raise self.place.defect


class Places:
    """Places by path, and all versions that were opened from them.

    Attributes:
        opened: opened versions in order.
        in_background: whether each was opened at a low priority.
    """

    def __init__(self, *places: Place, name: str = "fake") -> None:
        self.places = {Path(f"/{number}"): place for number, place in enumerate(places)}
        self.opened: list[FakeVersion] = []
        self.in_background: list[bool] = []
        self._name = name

    def __getitem__(self, number: int) -> Place:
        return self.places[Path(f"/{number}")]

    def open(self, path: Path, in_background: bool) -> FakeVersion:
        """Open the version at `path`, when it may be opened."""
        self.in_background.append(in_background)
        place = self.places[path]
        place.is_opening.set()
        assert place.may_open.wait(60)
        if place.error is not None and place.num_errors != 0:
            if place.num_errors is not None:
                place.num_errors -= 1
            raise place.error
        made = FakeVersion(place, path, self.open, self._name)
        self.opened.append(made)
        return made

    def first(self) -> FakeVersion:
        """The version of the first place."""
        return self.open(Path("/0"), False)

    @property
    def running(self) -> list[FakeVersion]:
        """Versions whose engines have not been closed."""
        return [version for version in self.opened if version.is_running]


def state_of(model: ModelLifecycle[FakeVersion]) -> str:
    """The name of the state, which a type checker does not assume to be constant."""
    return model.state.value

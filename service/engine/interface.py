"""The engine's interfaces: what the server needs of an engine, and what an engine reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from service.batching.events import Iteration
from service.domain.plan import RunnerLimits
from service.domain.requests import GenerationRequest, GenerationResult
from service.engine.admission import CompletionEstimate, Refusal
from service.engine.quota import AdmittedCall


@dataclass(frozen=True)
class EngineProgress:
    """The progress of an engine that has work.

    Attributes:
        num_reports: reports so far that show progress (`Events.is_progress`).
        expected_seconds: the longest time between two reports, by estimate; 0 if unknown.
    """

    num_reports: int
    expected_seconds: float = 0.0


class ServableEngine(Protocol):
    """An engine as server, registry and translator see it.

    Implemented by `service.engine.engine.Engine`, which says what its methods raise, and in the
    benchmark by engines that batch differently.
    """

    @property
    def limits(self) -> RunnerLimits:
        """What the model can take."""
        ...

    @property
    def widest(self) -> RunnerLimits:
        """What a single sequence can have of it: a beam may have to fit into one lane."""
        ...

    @property
    def has_failed(self) -> bool:
        """Whether it ended by itself, or did not end when it was stopped."""
        ...

    @property
    def can_score(self) -> bool:
        """Whether it takes scoring requests."""
        ...

    async def prepare_scoring(self, graph: str = "scoring") -> None:
        """Get ready for the first scoring request, or for one that selects "attention" weights."""
        ...

    def now(self) -> float:
        """The time on its clock, in seconds: what deadlines are compared with."""
        ...

    async def start(self) -> None:
        """Begin to serve."""
        ...

    def estimate(self, request: GenerationRequest) -> CompletionEstimate | None:
        """How long a request would take if it came now; None while the engine is idle."""
        ...

    def admit(
        self,
        max_in_flight: int,
        first: GenerationRequest | None = None,
        before: CompletionEstimate | None = None,
    ) -> AdmittedCall:
        """Admit a call with many sequences, or refuse it.

        Args:
            max_in_flight: most of its sequences inside at a time.
            first: its first request.
            before: of what another engine has to do first.
        """
        ...

    def check_room(self, first: GenerationRequest) -> None:
        """Raise what `admit` would raise now."""
        ...

    def pulse(self) -> EngineProgress | None:
        """Its progress; None while it has no work."""
        ...

    def abandon(self) -> None:
        """Fail, and leave a model that hangs behind; its requests end at once."""
        ...

    async def wait_until_ended(self) -> bool:
        """Wait until it has ended; whether it failed."""
        ...

    async def stop(self) -> None:
        """End what is left, in bounded time."""
        ...


class EngineObserver:
    """Receives an engine's events; ignores those that a subclass does not handle.

    Called on the event loop: methods must be quick and must not raise.
    """

    def on_current(self) -> None:
        """The engine gets its model's new calls from now on."""

    def on_retired(self) -> None:
        """The engine gets no more calls: another one replaced it, or its model goes to sleep."""

    def on_iterations(self, iterations: Sequence[Iteration]) -> None:
        """The step loop reported iterations, in order; at least one."""

    def on_held_back(self, calls: int) -> None:
        """So many admitted calls have a sequence for which there is no room yet."""

    def on_refused(self, reason: Refusal) -> None:
        """A call was refused before anything was computed for it."""

    def on_finished(
        self,
        result: GenerationResult,
        request: GenerationRequest,
        trace_ids: Mapping[str, str] | None = None,
    ) -> None:
        """A sequence ended, for whatever reason; `trace_ids` if its call is traced."""

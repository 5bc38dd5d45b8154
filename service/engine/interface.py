"""The engine's interfaces: the methods that the server calls, and the events of an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from service.batching.events import Iteration
from service.domain.plan import RunnerLimits
from service.domain.requests import GenerationRequest, GenerationResult
from service.engine.admission import Refusal
from service.engine.latency_model import CompletionEstimate
from service.engine.quota import AdmittedCall


@dataclass(frozen=True)
class EngineProgress:
    """The progress of an engine that has work.

    Attributes:
        num_reports: number of reports so far that show progress (`Events.is_progress`).
        expected_seconds: estimate of the longest time between two reports; 0 if unknown.
        may_hang: whether the engine hangs if it reports nothing for long; not while its model is
            opened, which has a limit of its own.
    """

    num_reports: int
    expected_seconds: float = 0.0
    may_hang: bool = True


class ServableEngine(Protocol):
    """The interface of an engine for server, registry and translator.

    Implemented by `service.engine.engine.Engine`, which documents the errors raised, and in the
    benchmark by engines that batch differently.
    """

    @property
    def limits(self) -> RunnerLimits:
        """Limits of the model."""
        ...

    @property
    def widest(self) -> RunnerLimits:
        """Limits of a single sequence: a beam may have to fit into one lane."""
        ...

    @property
    def has_failed(self) -> bool:
        """Whether the engine ended by itself, or did not end when it was stopped."""
        ...

    @property
    def can_score(self) -> bool:
        """Whether the model can score."""
        ...

    async def prepare_scoring(self, graph: str = "scoring") -> None:
        """Load the "scoring" graph, or the "attention" graph for requests that select weights."""
        ...

    def now(self) -> float:
        """The time on the engine's clock, in seconds, which deadlines are compared with."""
        ...

    async def start(self) -> None:
        """Start to accept requests."""
        ...

    def estimate(self, request: GenerationRequest) -> CompletionEstimate | None:
        """Estimate the time of a request that arrives now; None while the engine is idle."""
        ...

    def admit(
        self,
        max_in_flight: int,
        first: GenerationRequest | None = None,
        before: CompletionEstimate | None = None,
    ) -> AdmittedCall:
        """Admit or refuse a call with one or more sequences.

        Args:
            max_in_flight: most sequences of the call inside the engine at a time.
            first: the call's first request.
            before: estimate for the engine that has to run first; None without one.
        """
        ...

    def check_room(self, first: GenerationRequest) -> None:
        """Raise the error with which `admit` would refuse the request now, if any."""
        ...

    def pulse(self) -> EngineProgress | None:
        """The engine's progress; None while it has no work."""
        ...

    def abandon(self) -> None:
        """Abandon a model that hangs: its requests end at once, and the engine has failed."""
        ...

    async def wait_until_ended(self) -> bool:
        """Wait until the engine has ended; returns whether it failed."""
        ...

    async def stop(self) -> None:
        """End the remaining requests, in bounded time."""
        ...


class EngineObserver:
    """Receives an engine's events. The methods do nothing; subclasses override some of them.

    Called on the event loop: methods must be quick and must not raise.
    """

    def on_current(self) -> None:
        """Called when the engine begins to get its model's calls."""

    def on_retired(self) -> None:
        """Called when the engine gets no more calls: it was replaced, or its model sleeps."""

    def on_iterations(self, iterations: Sequence[Iteration]) -> None:
        """Called with one or more iterations of the step loop, in order."""

    def on_held_back(self, calls: int) -> None:
        """Called with the number of admitted calls that are waiting for free rows."""

    def on_refused(self, reason: Refusal) -> None:
        """Called when a call is refused, before anything is computed for it."""

    def on_finished(
        self,
        result: GenerationResult,
        request: GenerationRequest,
        trace_ids: Mapping[str, str] | None = None,
    ) -> None:
        """Called when a sequence ends, for any reason; with `trace_ids` if its call is traced."""

"""What server, registry and translator need of an engine, whichever it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from service.decoding.requests import GenerationRequest
from service.engine.quota import AdmittedCall
from service.runtime.plan import RunnerLimits


@dataclass(frozen=True)
class EngineProgress:
    """The progress of an engine that has work.

    Attributes:
        num_reports: how often the model has reported what it did (steps, encodes, scores).
        expected_seconds: what it may take from one report to the next, by estimate and at most; 0
            if nothing is known.
    """

    num_reports: int
    expected_seconds: float = 0.0


class ServableEngine(Protocol):
    """`service.engine.engine.Engine`, or another engine that batches differently."""

    @property
    def limits(self) -> RunnerLimits:
        """What the model can take."""
        ...

    @property
    def widest(self) -> RunnerLimits:
        """What a single sequence can have of it: a beam may have to fit into a part of the rows."""
        ...

    @property
    def has_failed(self) -> bool:
        """Whether it ended by itself, or did not end when it was stopped."""
        ...

    @property
    def can_score(self) -> bool:
        """Whether it takes scoring requests."""
        ...

    async def prepare_scoring(self) -> None:
        """Get ready for scoring requests; before the first of them.

        Raises:
            FailedPreconditionError: the model can't score.
            InternalError: it should, but could not be loaded.
            ResourceExhaustedError: likewise, for want of memory.
        """
        ...

    def now(self) -> float:
        """The time on its clock, in seconds: what deadlines are compared with."""
        ...

    async def start(self) -> None:
        """Begin to serve."""
        ...

    def admit(self, max_in_flight: int, first: GenerationRequest | None = None) -> AdmittedCall:
        """Let a call in, with at most `max_in_flight` sequences at a time.

        Args:
            max_in_flight: of its sequences, so many may be inside at a time.
            first: the one that it begins with.

        Raises:
            ResourceExhaustedError: there is no place, or the wait would be too long.
            DeadlineExceededError: the deadline cannot be met.
            UnavailableError: it does not serve.
        """
        ...

    def pulse(self) -> EngineProgress | None:
        """Its progress; None while it has no work."""
        ...

    def abandon(self) -> None:
        """Leave a model behind that hangs, and fail; what it had to do ends at once."""
        ...

    async def wait_until_ended(self) -> bool:
        """Wait until it has ended; whether it failed."""
        ...

    async def stop(self) -> None:
        """End what is left, in bounded time."""
        ...

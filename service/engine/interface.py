"""The engine's interfaces: what the server needs of an engine, and what an engine reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from service.decoding.requests import GenerationRequest, GenerationResult
from service.engine.admission import Refusal
from service.engine.quota import AdmittedCall
from service.runtime.plan import RunnerLimits


@dataclass(frozen=True)
class EngineProgress:
    """The progress of an engine that has work.

    Attributes:
        num_reports: reports of the step loop so far (of steps, encodes, scores).
        expected_seconds: the longest time between two reports, by estimate; 0 if unknown.
    """

    num_reports: int
    expected_seconds: float = 0.0


class ServableEngine(Protocol):
    """An engine as server, registry and translator see it.

    Implemented by `service.engine.engine.Engine`, and in the benchmark by engines that batch
    differently.
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

    async def prepare_scoring(self) -> None:
        """Get ready for scoring requests; before the first of them.

        Raises:
            FailedPreconditionError: the model can't score.
            InternalError: the scoring graph could not be loaded.
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
        """Admit a call with many sequences.

        Args:
            max_in_flight: most of its sequences inside at a time.
            first: its first request.

        Raises:
            ResourceExhaustedError: the queue is full, or the wait would be too long.
            DeadlineExceededError: the deadline cannot be met.
            UnavailableError: it does not serve.
        """
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

    def on_step(self, rows: int, encodes: int, encode_seconds: float, step_seconds: float) -> None:
        """An iteration encoded `encodes` sources and stepped.

        `rows` are all that stepped at that time, in other lanes too.
        """

    def on_scored(self, count: int, seconds: float) -> None:
        """An iteration scored `count` targets."""

    def on_padding(self, tokens: int) -> None:
        """An iteration's encoder computed `tokens` positions of padding."""

    def on_queue(self, waiting: int, running: int) -> None:
        """After an iteration, `waiting` sequences wait and `running` rows are in use."""

    def on_held_back(self, calls: int) -> None:
        """So many admitted calls have a sequence for which there is no room yet."""

    def on_refused(self, reason: Refusal) -> None:
        """A call was refused before anything was computed for it."""

    def on_admitted(self, queue_seconds: float) -> None:
        """A sequence joined the batch."""

    def on_first_token(self, seconds: float) -> None:
        """A sequence got its first token, so long after it was submitted."""

    def on_finished(self, result: GenerationResult, request: GenerationRequest) -> None:
        """A sequence ended, for whatever reason."""

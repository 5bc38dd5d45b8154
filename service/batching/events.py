"""Events that a step loop reports: the same values within a process and between processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from service.batching.records import Finished


class Iteration(NamedTuple):
    """One step, encode or scoring, for the metrics and the latency model.

    A tuple, since one is made for each step and sent between processes: both take a third of the
    time of a frozen dataclass.

    Attributes:
        num_waiting: number of requests that wait after the iteration.
        num_running: number of rows in use after the iteration.
        num_rows: number of rows that stepped.
        num_encodes: number of sources encoded.
        encode_seconds: duration of the encode.
        step_seconds: duration of the step.
        seconds: time from its schedule (or from the end of the step that it followed at once) to
            its end, without scoring.
        admitted: ids of the requests that joined the batch.
        num_scored: number of targets scored.
        score_seconds: duration of scoring.
        num_padding: number of encoder positions without a token.
        num_beside: number of rows in use in other lanes, which step at their own times.
        num_rows_encoded: number of rows for which sources were encoded ahead.
        is_progress: whether it shows that no step hangs; dropped requests, and encodes while lanes
            step, do not.
    """

    num_waiting: int
    num_running: int
    num_rows: int = 0
    num_encodes: int = 0
    encode_seconds: float = 0.0
    step_seconds: float = 0.0
    seconds: float = 0.0
    admitted: Sequence[int] = ()
    num_scored: int = 0
    score_seconds: float = 0.0
    num_padding: int = 0
    num_beside: int = 0
    num_rows_encoded: int = 0
    is_progress: bool = True

    @property
    def num_stepping(self) -> int:
        """Number of rows stepping at that time, in all lanes; 0 for an iteration without a step."""
        return self.num_rows + self.num_beside if self.num_rows else 0


@dataclass(frozen=True)
class Events:
    """Events of the step loop since the last report. Requests are named by their ids.

    Attributes:
        streamed: ids and new tokens of requests that stream.
        finished: results of requests that finished.
        iterations: all iterations since the last events that had any.
    """

    streamed: Sequence[tuple[int, list[int]]] = ()
    finished: Sequence[Finished] = ()
    iterations: Sequence[Iteration] = ()

    @property
    def is_progress(self) -> bool:
        """Whether these events include an iteration, which shows that no step hangs."""
        return any(iteration.is_progress for iteration in self.iterations)


class Listener(Protocol):
    """Receives events on the step loop's thread, passes them on and returns at once."""

    def on_events(self, events: Events) -> None:
        """Called with new events."""
        ...

    def on_end(self, failed: bool) -> None:
        """Called when the loop has ended and the runner is closed; no more events follow.

        If the loop failed while a step was in flight, the runner is not closed.
        """
        ...

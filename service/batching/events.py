"""What a step loop reports: the same values in process and between processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from service.batching.records import Finished


class Iteration(NamedTuple):
    """One step, encode or scoring, for the metrics and the latency model.

    Made for each step and sent between processes: a tuple takes a third of a frozen dataclass's
    time for both.

    Attributes:
        num_rows, num_encodes, encode_seconds, step_seconds: the work, and its time.
        num_rows_encoded: rows that sources were encoded ahead for.
        num_beside: rows in use in other lanes, which step at their own times.
        num_waiting, num_running: requests that wait, rows in use after it.
        seconds: from its schedule (or from the end of the step that it followed at once) to its
            end, scoring left out.
        admitted: ids of the requests that joined the batch.
        num_scored, score_seconds: targets that were scored, and the time of that.
        num_padding: positions of the encoder that held no token.
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
        """Rows that stepped at that time, in all lanes; 0 if this was no step."""
        return self.num_rows + self.num_beside if self.num_rows else 0


@dataclass(frozen=True)
class Events:
    """What happened in the step loop. Requests are named by their ids.

    Attributes:
        streamed: new tokens of requests that stream.
        finished: requests that finished.
        iterations: all since the last events that had any.
    """

    streamed: Sequence[tuple[int, list[int]]] = ()
    finished: Sequence[Finished] = ()
    iterations: Sequence[Iteration] = ()

    @property
    def is_progress(self) -> bool:
        """Whether an iteration among these shows that no step hangs."""
        return any(iteration.is_progress for iteration in self.iterations)


class Listener(Protocol):
    """Receives events, on the step loop's thread: must pass them on and return."""

    def on_events(self, events: Events) -> None:
        """Something happened."""
        ...

    def on_end(self, failed: bool) -> None:
        """The loop has ended and the runner is closed; no more events follow.

        If it failed while a step was in flight, the runner is left as it is.
        """
        ...

"""What a server and the process of one of its models send each other.

Pickled, since both ends are the same program, started by one of them, on a socket that nobody else
can reach. Each message is preceded by its length.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from service.batching.config import EngineConfig
from service.batching.step_loop import Iteration
from service.decoding.requests import GenerationRequest, GenerationResult
from service.errors import DragomanError
from service.runtime.plan import RunnerLimits
from service.worker.opening import OpenModel

PIECE_BYTES = 256 * 1024  # that either end reads or writes at a time

_LENGTH = struct.Struct("<Q")

# --- to the model's process ----------------------------------------------------------------------


@dataclass(frozen=True)
class Open:
    """The first message: open the model. Answered with `Opened` or `NotOpened`.

    Attributes:
        open_model: does it; a function of a module, or a `functools.partial` of one.
    """

    open_model: Callable[[], OpenModel]


@dataclass(frozen=True)
class Start:
    """Begin to take jobs."""

    config: EngineConfig


@dataclass(frozen=True)
class NewJob:
    """A job, and the number that stands for it."""

    number: int
    request: GenerationRequest
    max_new_tokens: int
    submitted_at: float


@dataclass(frozen=True)
class Add:
    """Let the jobs take their turn."""

    jobs: Sequence[NewJob]


@dataclass(frozen=True)
class Stream:
    """Report the job's tokens, those it has and each new one."""

    number: int


@dataclass(frozen=True)
class Cancel:
    """End the job before the next step, if it has not ended by then."""

    number: int
    error: DragomanError


@dataclass(frozen=True)
class PrepareScoring:
    """Load what scoring needs. Answered with `Prepared`."""


@dataclass(frozen=True)
class Stop:
    """End after the step under way. Answered with `Ended`."""


# --- from it -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opened:
    """The model is there.

    Attributes:
        limits: what it can hold.
        widest: what one sequence can have of it.
        num_lanes: groups of rows that step at their own times.
        cache_bytes: what its caches can grow to.
        can_score: whether it can score.
        step_seconds: as in `service.worker.opening.OpenModel`.
    """

    limits: RunnerLimits
    widest: RunnerLimits
    num_lanes: int
    cache_bytes: int
    can_score: bool
    step_seconds: float = 0.0


@dataclass(frozen=True)
class NotOpened:
    """The model can't be served; the message says why and what to do."""

    message: str


@dataclass(frozen=True)
class Told:
    """`service.batching.step_loop.Events`, with numbers for jobs.

    Attributes:
        streamed, finished: as there.
        iterations: as there, but for the jobs that joined.
        joined: of each iteration, the jobs that joined in it.
    """

    streamed: Sequence[tuple[int, list[int]]]
    finished: Sequence[tuple[int, GenerationResult]]
    iterations: Sequence[Iteration]
    joined: Sequence[list[int]]


@dataclass(frozen=True)
class Prepared:
    """Scoring has been prepared, or could not be.

    Attributes:
        error: what to tell whoever waits for it; None if nothing went wrong. The process has logged
            the rest.
    """

    error: DragomanError | None


@dataclass(frozen=True)
class Ended:
    """The last message: the step loop has ended, and whether it failed."""

    failed: bool


# --- on the way ----------------------------------------------------------------------------------


def framed(message: object) -> bytes:
    """A message as bytes for the other end's `Frames`."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Finds the messages in what comes from the other end, in pieces of any size."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, piece: bytes) -> Iterator[Any]:
        """The messages that are complete with this piece."""
        received = self._received
        received += piece
        while len(received) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received)
            end = _LENGTH.size + length
            if len(received) < end:
                return
            body = bytes(received[_LENGTH.size : end])
            del received[:end]
            yield pickle.loads(body)

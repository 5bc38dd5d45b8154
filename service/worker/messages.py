"""The messages between a server and the process of one of its models: commands and events.

Events are `service.batching.events.Events`, as the step loop reports them. Messages are pickled,
since both ends are the same program, started by one of them, on a socket that no other process can
reach. Each is preceded by its length.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from service.batching.config import EngineConfig
from service.batching.records import EngineRequest
from service.domain.plan import RunnerLimits
from service.errors import DragomanError
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
    """Start the step loop."""

    config: EngineConfig


@dataclass(frozen=True)
class Add:
    """`StepLoop.add`."""

    requests: Sequence[EngineRequest]


@dataclass(frozen=True)
class Stream:
    """`StepLoop.stream`."""

    request_id: int


@dataclass(frozen=True)
class Cancel:
    """`StepLoop.cancel`."""

    request_id: int
    error: DragomanError


@dataclass(frozen=True)
class PrepareScoring:
    """Load what scoring needs, the graph "scoring" or "attention". Answered with `Prepared`."""

    graph: str


@dataclass(frozen=True)
class Stop:
    """End after the step in flight. Answered with `Ended`."""


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
class Prepared:
    """A graph has been loaded, or could not be.

    Attributes:
        graph: as in `PrepareScoring`.
        error: for the clients that wait for it; None if all went well. The process has logged the
            rest.
    """

    graph: str
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
    """Finds the messages in pieces of any size from the other end."""

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

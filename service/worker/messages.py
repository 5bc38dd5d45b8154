"""The messages between a server and the process of one of its models: commands and events.

Events are the step loop's `service.batching.events.Events`. Messages are pickled, the frequent ones
in their flat form, since both ends are the same program, one starts the other, and no other process
can reach the socket. Each message is preceded by its length and its kind.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from service.batching.config import EngineConfig
from service.batching.events import Events
from service.batching.records import EngineRequest
from service.domain.plan import RunnerLimits
from service.errors import DragomanError
from service.worker.flat import events_of, flat_events, flat_requests, requests_of
from service.worker.opening import OpenModel

PIECE_BYTES = 256 * 1024  # most bytes that either end reads or writes at a time

_HEAD = struct.Struct("<QB")  # length of the body, and kind
_OBJECT, _ADD, _EVENTS = range(3)

# --- to the model's process ----------------------------------------------------------------------


@dataclass(frozen=True)
class Open:
    """The first message: open the model. Answered with `Opened` or `NotOpened`.

    Attributes:
        open_model: opens the model; a function of a module, or a `functools.partial` of one.
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
    """Load the graph "scoring" or "attention". Answered with `Prepared`."""

    graph: str


@dataclass(frozen=True)
class Stop:
    """End after the step in flight. Answered with `Ended`."""


# --- from it -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opened:
    """The model has been opened.

    Attributes:
        limits: limits of the runner.
        widest: limits of one sequence.
        num_lanes: number of lanes.
        cache_bytes: size that the caches can grow to, in bytes.
        can_score: whether the model can score.
        step_seconds: duration of a step of one row, measured in a trial; 0 without a trial.
    """

    limits: RunnerLimits
    widest: RunnerLimits
    num_lanes: int
    cache_bytes: int
    can_score: bool
    step_seconds: float = 0.0


@dataclass(frozen=True)
class NotOpened:
    """The model can't be served; `message` says why and what to do."""

    message: str


@dataclass(frozen=True)
class Prepared:
    """A graph has been loaded, or could not be.

    Attributes:
        graph: name of the graph, "scoring" or "attention".
        error: error for the clients that wait for the graph; None if it has been loaded. The
            process has logged the details.
    """

    graph: str
    error: DragomanError | None


@dataclass(frozen=True)
class Ended:
    """The last message: the step loop has ended, and whether it failed."""

    failed: bool


# --- on the way ----------------------------------------------------------------------------------


def framed(message: object) -> bytes:
    """Encode a message for the other end's `Frames`."""
    kind, flat = _OBJECT, message
    if isinstance(message, Add):
        kind, flat = _ADD, flat_requests(message.requests)
    elif isinstance(message, Events):
        kind, flat = _EVENTS, flat_events(message)
    body = pickle.dumps(flat, pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(body), kind) + body


class Frames:
    """Decodes messages from bytes that arrive in pieces of any size."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, piece: bytes) -> Iterator[Any]:
        """Yield the messages that this piece completes."""
        received = self._received
        received += piece
        while len(received) >= _HEAD.size:
            length, kind = _HEAD.unpack_from(received)
            end = _HEAD.size + length
            if len(received) < end:
                return
            body = bytes(received[_HEAD.size : end])
            del received[:end]
            message = pickle.loads(body)
            if kind == _ADD:
                message = Add(requests_of(message))
            elif kind == _EVENTS:
                message = events_of(message)
            yield message

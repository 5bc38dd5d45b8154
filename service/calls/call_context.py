"""The context of a call: request id, client, peer, deadline."""

from __future__ import annotations

import contextvars
import random
import time
from collections.abc import Callable
from typing import Any, Protocol

import grpc

from dragoman.conversions import CLIENT_ID, REQUEST_ID, VALID_ID
from service.access.authentication import Grant
from service.common import fairness
from service.observability import logs

GrpcContext = grpc.aio.ServicerContext[Any, Any]

# The client's time runs from when it sent the call, ours from when the call arrived: on its side,
# the deadline passes earlier by the time that the call was on its way, or waited to be taken. The
# deadline of a client that is gone in this last part of its time counts as passed, within bounds in
# seconds.
_LAST_PART, _LEAST_SECONDS, _MOST_SECONDS = 0.1, 0.1, 2.0


class Context(Protocol):
    """The part of gRPC's context that calls need. Fronts over HTTP have a context like it."""

    def invocation_metadata(self) -> Any:
        """Pairs of a name in lower case and a value, or None."""
        ...

    def peer(self) -> str:
        """Address and port that the call came from, such as "ipv4:127.0.0.1:50000"."""
        ...

    def time_remaining(self) -> Any:
        """Seconds until the client's deadline; None without one.

        gRPC's follows the wall clock, so it is only asked when the call begins.
        """
        ...


class CallContext:
    """A call in progress.

    Attributes:
        deadline: the client's deadline, in seconds of `time.monotonic`; None without one.
        request_id: id of the call in the log.
        client: id of the client, for fairness: the tenant or the name of its key, otherwise "id:"
            and the name that it sends, or its address without the port.
        client_id: the name that a client with a key sends, which divides its share; otherwise "".
        peer: address and port that the call came from.
        grant: permissions of the call; until it is authenticated, it may do everything.
        facts: numbers and names for the log line of the call; never a text or a key.
    """

    def __init__(self, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        remaining: float | None = context.time_remaining()
        self.deadline = None if remaining is None else clock() + remaining
        self._last_seconds = min(
            max(_LEAST_SECONDS, _LAST_PART * (remaining or 0.0)), _MOST_SECONDS
        )
        self._clock = clock
        metadata = context.invocation_metadata() or ()  # gRPC builds a new one for each caller
        # Not uuid4: reading random bytes from the kernel costs more than the whole interceptor.
        self.request_id = _valid_id(metadata, REQUEST_ID) or f"{random.getrandbits(128):032x}"
        self.peer: str = context.peer()
        name = _valid_id(metadata, CLIENT_ID)
        self.client = f"id:{name}" if name else host_of(self.peer)
        self.grant = Grant()
        self.facts: dict[str, object] = {"client": self.client, "peer": self.peer}
        self.client_id = ""
        self._given_id = name

    def identify(self, grant: Grant) -> None:
        """Set the permissions and the client of the call, from its key."""
        self.grant = grant
        if (principal := grant.principal) is None:
            return
        self.client = principal.client
        fairness.works_for(self.client)
        self.facts.update(client=self.client, key=principal.name)
        if self._given_id:
            self.client_id = self.facts["client_id"] = self._given_id

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self.deadline is None else self.deadline - self._clock()

    @property
    def has_expired(self) -> bool:
        """Whether the client's deadline has passed, as far as the server can tell."""
        return (left := self.seconds_left) is not None and left <= self._last_seconds

    def enter(self) -> None:
        """Make this the current call of the running task: gRPC runs each call in its own task."""
        logs.request_id.set(self.request_id)
        _current.set(self)
        fairness.arrived(self.client)


def _valid_id(metadata: Any, key: str) -> str | None:
    for name, value in metadata:
        if name == key and isinstance(value, str) and VALID_ID.fullmatch(value):
            return value
    return None


def host_of(peer: str) -> str:
    """A peer's address without the port, which differs for each connection."""
    return peer.rpartition(":")[0] if peer.startswith("ipv") else peer


def current_call() -> CallContext:
    """The call that the running task answers."""
    return _current.get()


_current: contextvars.ContextVar[CallContext] = contextvars.ContextVar("call")

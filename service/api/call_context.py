"""What is known of a call from its context: request id, client, peer, deadline."""

from __future__ import annotations

import contextvars
import random
from typing import Any, Protocol

import grpc

from dragoman.conversions import CLIENT_ID, REQUEST_ID, VALID_ID
from service.api.authentication import Grant
from service.observability import logs
from service.translation import fairness

GrpcContext = grpc.aio.ServicerContext[Any, Any]


class Context(Protocol):
    """What a front knows of a call. gRPC's context is one, by these names."""

    def invocation_metadata(self) -> Any:
        """Pairs of a name in lower case and a value, or None."""
        ...

    def peer(self) -> str:
        """Address and port that the call came from, such as "ipv4:127.0.0.1:50000"."""
        ...

    def time_remaining(self) -> Any:
        """Seconds until the client's deadline; None without one."""
        ...


class CallContext:
    """A call in progress.

    Attributes:
        request_id: identifies the call in the log.
        client: identifies the client, for fairness: the tenant or the name of its key, otherwise
            "id:" and the name that it sends, or its address without the port.
        client_id: the name that a client with a key sends, which divides its share; otherwise "".
        peer: address and port that the call came from.
        grant: what the call may do; everything until it is authenticated.
        facts: numbers and names for the log line of the call; never a text or a key.
    """

    def __init__(self, context: Context) -> None:
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
        """Set what the call may do, and whose it is."""
        self.grant = grant
        if (principal := grant.principal) is None:
            return
        self.client = principal.client
        fairness.works_for(self.client)
        self.facts.update(client=self.client, key=principal.name)
        if self._given_id:
            self.client_id = self.facts["client_id"] = self._given_id

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


def time_remaining(context: Context) -> float | None:
    """Seconds until the client's deadline; None without one (gRPC's types omit None)."""
    remaining: float | None = context.time_remaining()
    return remaining


def current_call() -> CallContext:
    """The call that the running task answers."""
    return _current.get()


_current: contextvars.ContextVar[CallContext] = contextvars.ContextVar("call")

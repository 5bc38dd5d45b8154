"""A bounded number of connections, in which idle ones give way to new ones."""

from __future__ import annotations

import asyncio
from typing import Protocol

from uvicorn.protocols.utils import get_remote_addr

from service.calls.call_context import host_of
from service.engine.quota import Quota

Waiting = tuple[bool, float]
"""State of a connection whose client has to act: whether an answer is on its way, which is
closed last, and the time of the loop's clock since when."""


class Limited(Protocol):
    """The methods of a connection that the limit calls."""

    @property
    def transport(self) -> asyncio.Transport:
        """The connection, for the limit to abort."""
        ...

    @property
    def waiting(self) -> Waiting | None:
        """Whether the server waits for the client; None if it works for it."""
        ...


class ConnectionLimit:
    """The connections of a server: a bounded number, the last eighth for hosts with few.

    Where there is no room for a new one, the server closes one that waits for its client: an idle
    one, of the host with most connections, the one that waits longest.
    """

    def __init__(self, capacity: int) -> None:
        self._quota = Quota(capacity)
        self._hosts: dict[Limited, str] = {}

    def enter(self, connection: Limited) -> bool:
        """Count a connection, once it has a transport. Without room, abort it and return False."""
        if connection in self._hosts:  # handed over
            return True
        address = get_remote_addr(connection.transport)
        host = host_of(f"ipv:{address[0]}:" if address else "")
        if self._quota.take(1, host) or (self._evict() and self._quota.take(1, host)):
            self._hosts[connection] = host
            return True
        connection.transport.abort()
        return False

    def leave(self, connection: Limited) -> None:
        """Stop counting a connection, if it was counted."""
        host = self._hosts.pop(connection, None)
        if host is not None:
            self._quota.release(1, host)

    def hand_over(self, old: Limited, new: Limited) -> bool:
        """Count `new` in place of `old`; returns whether `old` was still counted."""
        if old not in self._hosts:
            return False
        self._hosts[new] = self._hosts.pop(old)
        return True

    def abort_all(self) -> None:
        """Close all connections at once."""
        for connection in list(self._hosts):
            connection.transport.abort()

    def _evict(self) -> bool:
        """Close a connection that waits; returns whether there was one."""
        held_by = self._quota.held_by
        candidates = [
            (waiting[0], -held_by(host), waiting[1], connection)
            for connection, host in self._hosts.items()
            if (waiting := connection.waiting) is not None
        ]
        if not candidates:
            return False
        connection = min(candidates, key=lambda found: found[:3])[3]
        self.leave(connection)
        connection.transport.abort()
        return True

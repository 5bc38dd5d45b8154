"""Waiting work of clients that take turns."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable


class Turns:
    """Waiting work by client, the next client first; a client's own work is in order."""

    def __init__(self) -> None:
        self._clients: dict[str, OrderedDict[asyncio.Future[None], None]] = {}

    def __bool__(self) -> bool:
        return bool(self._clients)

    def add(self, client: str) -> asyncio.Future[None]:
        """Add work of a client; the returned future is set when it is due."""
        due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clients.setdefault(client, OrderedDict())[due] = None
        return due

    def discard(self, client: str, due: asyncio.Future[None]) -> None:
        """Remove work that is given up, if it still waits."""
        works = self._clients.get(client)
        if works is not None:
            works.pop(due, None)
            if not works:
                del self._clients[client]

    def wake(self, may_begin: Callable[[str], bool] | None = None) -> str | None:
        """Wake the next work of the next client; returns the client, None if nothing waits.

        Args:
            may_begin: whether work of a client may begin; by default, that of any may.
        """
        while (client := next(filter(may_begin or _anybody, self._clients), None)) is not None:
            works = self._clients.pop(client)
            while works:
                due, _ = works.popitem(last=False)
                if due.done():  # cancelled, which its task may not know yet
                    continue
                due.set_result(None)
                if works:  # to the end of the line
                    self._clients[client] = works
                return client
        return None


def _anybody(_: str) -> bool:
    return True

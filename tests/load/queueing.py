"""A server in virtual time that answers one request at a time, in the order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bench.load.sample import ReplySample


class OneAtATime:
    """Each answer takes `service` seconds; from `stall_at` on, nothing happens for a while."""

    def __init__(self, service: float, stall_at: float = 0.0, stall: float = 0.0) -> None:
        self._service = service
        self._stall = (stall_at, stall_at + stall)
        self._free_at = 0.0

    async def __call__(self, texts: Sequence[str]) -> ReplySample:
        loop = asyncio.get_running_loop()
        begin = max(loop.time(), self._free_at)
        if self._stall[0] <= begin < self._stall[1]:
            begin = self._stall[1]
        self._free_at = begin + self._service
        await asyncio.sleep(self._free_at - loop.time())
        return ReplySample(target_tokens=len(texts))

"""Targets of the fuzzer that misbehave in every way that it has to find."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from tests.robustness.fuzz.server import Footprint
from tests.robustness.fuzz.target import Finding, expect

WARM_UP = 250  # inputs, more than those after which memory is judged


class MisbehavingParser:
    """Fails for the inputs whose number says how; the others are fine."""

    name: ClassVar[str] = "misbehaving"
    share: ClassVar[float] = 1
    what: ClassVar[str] = "nothing"

    def __init__(self) -> None:
        self._number = -1
        self._kept: list[bytes] = []

    def generate(self, rng: random.Random) -> int:
        """The count of inputs so far."""
        self._number += 1
        return self._number

    def run(self, given: int) -> str:
        """Misbehave."""
        match given - WARM_UP:
            case 0:
                raise KeyError("planted")
            case 1:
                raise BaseException("planted panic")
            case 2:
                expect(False, "a property", given)
            case 3:
                until = time.process_time() + 0.4
                while time.process_time() < until:
                    pass
            case 4:
                self._kept.append(b"\1" * (100 * 2**20))
            case 5:
                self._kept.append(bytes(2**36))
            case 6:
                time.sleep(60)
        return "fine"


class DyingParser(MisbehavingParser):
    """Ends its process at one input."""

    name: ClassVar[str] = "dying"

    def run(self, given: int) -> str:
        """Die at the first input of a process."""
        if given == 0:
            os._exit(3)
        return "fine"


class FakeFuzzedServer:
    """A server with a given canary, process and footprint."""

    def __init__(
        self,
        problem: str = "",
        is_alive: bool = True,
        footprint: Footprint | None = None,
    ) -> None:
        self.problem = problem
        self.is_alive = is_alive
        self.footprint = footprint or Footprint(0, 0)

    async def canary(self) -> str:
        """The value given to the constructor."""
        return self.problem

    async def settled(self, base: Footprint) -> Footprint:
        """The value given to the constructor."""
        return self.footprint


class MisbehavingCalls:
    """Calls that fail by their number."""

    name: ClassVar[str] = "calls"
    share: ClassVar[float] = 0.1
    what: ClassVar[str] = "nothing"
    at_once: ClassVar[int] = 2

    def __init__(self) -> None:
        self._number = -1

    def generate(self, rng: random.Random) -> int:
        """The count of inputs so far."""
        self._number += 1
        return self._number

    @contextlib.asynccontextmanager
    async def connected(self, server: Any) -> AsyncIterator[None]:
        """Nothing."""
        yield

    async def run(self, given: int, server: Any) -> str:
        """Misbehave."""
        if given == 1:
            raise Finding("a status", "INTERNAL")
        if given == 2:
            raise ValueError("planted")
        if given == 3:
            import asyncio

            await asyncio.Event().wait()
        return "fine"

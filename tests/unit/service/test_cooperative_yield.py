"""A coroutine yields to the event loop when it is due, and only then."""

from __future__ import annotations

import asyncio
import math

import pytest

from service.translation.fairness import CooperativeYield


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, 10), (math.inf, 0)])
async def test_others_run_when_a_yield_is_due(seconds: float, expected: int) -> None:
    seen = 0

    async def other() -> None:
        nonlocal seen
        while True:
            seen += 1
            await asyncio.sleep(0)

    yielder = CooperativeYield(seconds)
    task = asyncio.ensure_future(other())
    for _ in range(10):
        await yielder.checkpoint()
    assert seen == expected
    task.cancel()

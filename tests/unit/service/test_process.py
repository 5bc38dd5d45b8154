"""The end of a server that fails to start."""

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from service.errors import StartupError
from service.process import serve


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The handlers of signals, which are restored afterwards."""
    numbers = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


class FailingServer:
    """A server whose start fails, after a signal to stop."""

    def __init__(self, is_asked: bool) -> None:
        self._is_asked = is_asked

    async def start(self) -> None:
        if self._is_asked:
            signal.raise_signal(signal.SIGTERM)
            for _ in range(3):  # in which the event loop handles it
                await asyncio.sleep(0)
        raise StartupError("no such bundle")

    def reload_changed(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("is_asked", [False, True])
async def test_a_start_that_fails_after_a_signal_to_stop_is_no_failure(is_asked: bool) -> None:
    server: Any = FailingServer(is_asked)
    if is_asked:
        await serve(server)
    else:
        with pytest.raises(StartupError):
            await serve(server)

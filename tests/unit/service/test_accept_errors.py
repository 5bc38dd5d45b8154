import asyncio
import errno

import pytest

from service.process import _AcceptErrors


async def test_connections_that_cannot_be_accepted_are_one_line_without_a_stack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_AcceptErrors())
    error = OSError(errno.EMFILE, "Too many open files")
    for _ in range(100):  # as asyncio does in one iteration
        loop.call_exception_handler(
            {"message": "socket.accept() out of system resource", "exception": error}
        )
    loop.call_exception_handler({"message": "another error", "exception": ValueError("x")})
    first, other = caplog.records
    assert first.exc_info is None
    assert "Too many open files" in vars(first)["reason"]
    assert other.exc_info

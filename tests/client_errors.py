"""The errors that calls end with, as clients see them."""

from __future__ import annotations

from collections.abc import Awaitable

import grpc
import pytest

from dragoman import TranslationError


async def error_of(call: Awaitable[object], match: str | None = None) -> TranslationError:
    """The error of a call of our client, in which the regular expression `match` is found."""
    with pytest.raises(TranslationError, match=match) as caught:
        await call
    return caught.value


async def refused(call: Awaitable[object], code: str, match: str | None = None) -> TranslationError:
    """The same; its code must have the name `code`."""
    error = await error_of(call, match)
    assert error.code.name == code
    return error


async def status_error_of(
    call: Awaitable[object], match: str | None = None
) -> grpc.aio.AioRpcError:
    """The error of a call of gRPC's own client."""
    with pytest.raises(grpc.aio.AioRpcError, match=match) as caught:
        await call
    return caught.value

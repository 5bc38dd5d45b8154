"""What the client refuses by itself: it would go wrong, or be ignored, at every server."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.client import AsyncClient, Client, Search

NOBODY = "127.0.0.1:1"


async def test_arguments_that_no_server_takes_are_named() -> None:
    wrong: Any = "A dog."
    with Client(NOBODY) as client:
        with pytest.raises(TypeError, match="texts"):
            client.translate(wrong)
        for bad in ("my id", "ü", "x" * 129, "a\tb"):
            with pytest.raises(ValueError, match="request_id"):
                client.translate(["A dog."], request_id=bad)
            with pytest.raises(ValueError, match="client_id"):
                Client(NOBODY, client_id=bad).translate(["A dog."])
    async with AsyncClient(NOBODY) as other:
        with pytest.raises(TypeError, match="texts"):
            await other.translate(wrong)
        with pytest.raises(ValueError, match="request_id"):
            await other.translate(["A dog."], request_id="my id")
    with pytest.raises(TypeError, match="suppressed_tokens"):
        Search(suppressed_tokens=wrong)

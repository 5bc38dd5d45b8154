"""A server of models that echo their texts, English to German, German to French."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from model.bundle.tokenizer import Tokenizer
from tests.integration.http_client import Answer, ask
from tests.integration.servers import Running, running_echoes

FORM = "application/x-www-form-urlencoded"

Serving = Callable[..., contextlib.AbstractAsyncContextManager[Running]]


@pytest.fixture
def serving(tokenizer: Tokenizer) -> Serving:
    def serve(**settings: Any) -> contextlib.AbstractAsyncContextManager[Running]:
        return running_echoes(tokenizer, "en-de", "de-fr", http_port=0, **settings)

    return serve


@pytest.fixture
async def server(serving: Serving) -> AsyncIterator[Running]:
    async with serving() as made:
        yield made


async def form(server: Running, path: str, *pairs: tuple[str, str], **headers: str) -> Answer:
    """POST a form."""
    body = urlencode(pairs).encode()
    return await ask(server, "POST", path, body, **{"content_type": FORM, **headers})

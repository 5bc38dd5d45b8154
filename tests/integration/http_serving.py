"""Servers with an HTTP port, for tests."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from model.bundle.tokenizer import Tokenizer
from service.observability.metrics import ServerMetrics
from service.server import Server
from tests.integration.servers import Running, any_ports, fake_runner, running_fake

TRANSLATE, STREAM = "/v1/translate", "/v1/translate:stream"
TEXT = "A dog is running. The children are playing."


@contextlib.asynccontextmanager
async def serving(tokenizer: Tokenizer, **settings: Any) -> AsyncIterator[Running]:
    chosen = {"http_port": 0, **settings}
    async with running_fake(fake_runner(tokenizer), tokenizer, **chosen) as made:
        yield made


def held(made: Running) -> tuple[int, ...]:
    """The units of quotas held by calls and transfers."""
    tracker, http = made.server._tracker, made.server._http
    assert http is not None
    transfers = http.app._transfers
    quotas = (tracker.calls, tracker.bytes, transfers.arriving, transfers.leaving)
    return tuple(quota.num_taken for quota in quotas)


def unserved() -> tuple[Any, Any, Any]:
    server = Server(any_ports(), lambda: pytest.fail("not started"), ServerMetrics())
    return server._servicer, server._tracker, server.probes.known_reason

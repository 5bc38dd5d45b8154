"""Bodies that take long to parse are parsed in a thread, whatever their size."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from service.fronts.http.endpoint import HttpCall


@pytest.mark.parametrize(
    ("data", "is_short"),
    [
        (b'{"q": "A dog, a cat."}', True),
        (b'{"q": "%b"}' % (b"A long text, with commas. " * 400), True),
        (b'{"q": "%b"}' % (b"A longer text. " * 2000), False),
        (b'{"q":[' + b"{}," * 5000 + b"{}]}", False),
        (b"[" * 16_000, False),
        (b"q=b&" * 4000, False),
        (b"--x\r\n" * 3000, False),
    ],
)
async def test_bodies_with_many_values(data: bytes, is_short: bool) -> None:
    def parse(given: bytes) -> bool:
        assert given is data
        return threading.current_thread() is threading.main_thread()

    call: Any = SimpleNamespace(host="192.0.2.1")
    assert await HttpCall.read(call, parse, data) == is_short

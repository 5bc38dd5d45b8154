"""The front of the page on adding one: its code is complete, and has what every front has."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette

from service.fronts.http.endpoint import FrontServer
from service.fronts.http.front_endpoint import Front
from service.fronts.http.request_json import JsonRequestParser
from service.fronts.http.transfers import HttpLimits, Transfers
from service.ports.http.front_routes import front_routes
from service.ports.http.server import HttpServer
from tests.integration.http_client import ask, post
from tests.integration.servers import ROOT, Running

TEXT = "A dog is running in the garden."


def code() -> str:
    """The code in the page."""
    page = (ROOT / "service/fronts/README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def toy() -> Front:
    """The front in the page."""
    names: dict[str, Any] = {"__name__": "toy"}
    exec(code(), names)
    front: Front = names["Toy"]()
    return front


@contextlib.asynccontextmanager
async def served(running: Running) -> AsyncIterator[Any]:
    """The front on a port of its own, over the use cases of a server."""
    backend, tracker = running.server._backend, running.server._tracker
    limits = HttpLimits()
    transfers = Transfers(limits, 1000)
    server = FrontServer(backend, tracker, transfers, JsonRequestParser(tracker.parser))
    app = Starlette(routes=list(front_routes([toy()], server, lambda: "")))
    http = HttpServer(app, "127.0.0.1", 0, "--http-port", limits, 10)
    await http.start()
    try:
        yield type("", (), {"server": type("", (), {"http_port": http.port})})
    finally:
        await http.close()


async def test_a_new_front_translates_and_has_its_own_errors(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dragoman.access")
    async with served(server) as made:
        answer = await post(made, "/toy", {"text": TEXT, "to": "de"}, x_request_id="r-1")
        assert (answer.status, answer.json) == (200, {"translation": TEXT, "from": "en"})
        assert answer.headers["x-request-id"] == "r-1"
        for body, status, problem in (
            ({"to": "de"}, 400, "text: is missing"),
            ({"text": TEXT * 1000, "to": "de"}, 413, "body: more than 1,000 bytes, the limit"),
            ({"text": TEXT, "to": "xx"}, 422, "'xx'"),
        ):
            refused = await post(made, "/toy", body)
            assert refused.status == status
            assert problem in refused.json["problem"]
        assert (await ask(made, "GET", "/openapi.json")).json["paths"]["/toy"]["get"]
    lines = [vars(record) for record in caplog.records if record.name == "dragoman.access"]
    assert [(line["front"], line["code"]) for line in lines] == [
        ("toy", "OK"),
        ("toy", "INVALID_ARGUMENT"),
        ("toy", "INVALID_ARGUMENT"),
        ("toy", "NOT_FOUND"),
    ]
    assert server.metric("dragoman_requests_total", method="Translate", code="OK") == 1


@pytest.mark.parametrize("arguments", [["check"], ["format", "--diff"]])
def test_the_code_of_the_page_passes_ruff(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", "service/fronts/x.py"]
    done = subprocess.run([*command, "-"], cwd=ROOT, input=code(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

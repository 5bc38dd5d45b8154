"""A client of the HTTP front, for the tests."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.integration.servers import Running


@dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)

    @property
    def field(self) -> str:
        """The field named in the answer's BadRequest."""
        [detail] = self.json["details"]
        return str(detail["fieldViolations"][0]["field"])

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The type and the data of each server-sent event."""
        found = []
        for block in self.body.decode().removesuffix("\n\n").split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.split("\n"))
            found.append((fields.get("event", "message"), json.loads(fields["data"])))
        return found


async def ask(server: Running, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    """Send a request; a body that isn't bytes as JSON. In header names, `_` stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    if body is not None:
        named = {"content-type": "application/json", **named}

    def request() -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", server.server.http_port, timeout=60)
        try:
            connection.request(method, path, body, named)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    return await asyncio.to_thread(request)


async def post(server: Running, path: str, body: Any, **headers: str) -> Answer:
    """POST a message."""
    return await ask(server, "POST", path, body, **headers)


def raw_post(path: str, body: bytes, length: int | None = None) -> bytes:
    """The bytes of a POST request; `length` is the declared length of the body."""
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {size}\r\n\r\n".encode() + body

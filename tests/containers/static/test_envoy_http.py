"""Envoy's handling of HTTP with docker/envoy/envoy.yaml."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message as Headers
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.containers.static.envoy_process import Script, backend, envoy
from tests.containers.waiting import eventually
from tests.robustness.envoy import Envoy


@dataclass
class Replica:
    """The HTTP port of a replica.

    Attributes:
        name: name of the replica in its answers.
        codes: status codes of the next answers; 200 after these.
        seen: each request that is no health check: method, path, headers and body.
        is_ready: result of its health check.
        goes_on: requests are answered only while it is set.
    """

    name: str
    codes: deque[int] = field(default_factory=deque)
    seen: list[tuple[str, str, Headers, bytes]] = field(default_factory=list)
    is_ready: bool = True
    goes_on: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.goes_on.set()


@contextlib.contextmanager
def http_replica(replica: Replica) -> Iterator[int]:
    """Run a replica on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.path == "/readyz":
                status = 200 if replica.is_ready else 503
            else:
                replica.seen.append((self.command, self.path, self.headers, body))
                replica.goes_on.wait()
                status = replica.codes.popleft() if replica.codes else 200
            sent = json.dumps({"replica": replica.name}).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_DELETE = do_OPTIONS = answer

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield server.server_port
    finally:
        replica.goes_on.set()
        server.shutdown()
        serving.join()
        server.server_close()


@dataclass(frozen=True)
class Front:
    """Envoy with two replicas behind it."""

    envoy: Envoy
    replicas: tuple[Replica, Replica]

    @property
    def seen(self) -> list[tuple[str, str, Headers, bytes]]:
        """Requests that reached a replica."""
        return [request for replica in self.replicas for request in replica.seen]


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    one, two = Replica("one"), Replica("two")
    with (
        backend("a", Script()) as a,
        http_replica(one) as first,
        http_replica(two) as second,
        envoy(tmp_path, [a.port], http_ports=[first, second]) as running,
    ):
        yield Front(running, (one, two))


def error(found: tuple[int, Headers, Any], status: int, code: grpc.StatusCode) -> Any:
    """The body of an error of Envoy's own: it has the shape of the servers' errors, and an id."""
    got, headers, answer = found
    assert got == status, answer
    assert headers["content-type"] == "application/json"
    assert headers["x-request-id"]
    assert set(answer) == {"code", "message", "details"}
    assert answer["code"] == code.value[0]
    assert answer["message"]
    return answer


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/translate"),
        ("GET", "/v1/models/a?x=%2F"),
        ("POST", "/translate"),
        ("POST", "/v2/translate"),
        ("DELETE", "/v2/glossaries/7"),
        ("POST", "/v3/projects/p/locations/global:translateText"),
        ("GET", "/"),
        ("GET", "/openapi.json"),
    ],
)
def test_every_path_of_http_reaches_a_replica_as_it_is(
    front: Front, method: str, path: str
) -> None:
    body = '{"contents": ["\u00fc"]}'.encode() if method == "POST" else None
    status, _, answer = front.envoy.post(path, body, method)
    assert status == 200
    assert answer["replica"] in ("one", "two")
    ((sent_method, sent_path, _, sent_body),) = front.seen
    assert (sent_method, sent_path, sent_body) == (method, path, body or b"")


@pytest.mark.parametrize("code", [503, 499])
def test_a_call_that_a_stopping_replica_refused_goes_to_the_other(front: Front, code: int) -> None:
    for replica in front.replicas:
        replica.codes.append(code)
    front.replicas[1].codes.clear()
    for _ in range(4):
        status, _, answer = front.envoy.post("/v1/translate", {})
        assert (status, answer) == (200, {"replica": answer["replica"]})
    assert len(front.seen) == 4 + (not front.replicas[0].codes)


@pytest.mark.parametrize("code", [400, 401, 404, 429, 500, 504])
def test_what_another_try_would_not_help_is_not_tried_again(front: Front, code: int) -> None:
    for replica in front.replicas:
        replica.codes.append(code)
    status, _, answer = front.envoy.post("/v1/translate", {})
    assert (status, len(front.seen)) == (code, 1)
    assert answer["replica"] in ("one", "two")


def test_a_replica_that_drains_gets_no_calls(front: Front) -> None:
    front.replicas[0].is_ready = False
    eventually(
        lambda: (
            {front.envoy.post("/v1/models", None, "GET")[2]["replica"] for _ in range(8)} == {"two"}
        ),
        "calls go to the other one",
    )


def test_the_request_id_is_the_servers_and_the_clients(front: Front) -> None:
    for own in (None, "order:17/b", "7b0ac0a2-7a34-4d8c-8a49-5c7bb2b8a3ff"):
        sent = {} if own is None else {"x_request_id": own}
        _, headers, _ = front.envoy.post("/v1/translate", {}, **sent)
        (seen,) = [headers["x-request-id"] for _, _, headers, _ in front.seen]
        assert headers["x-request-id"] == seen
        assert own is None or seen == own
        for replica in front.replicas:
            replica.seen.clear()


def test_replicas_tell_callers_apart_and_the_log_does(front: Front) -> None:
    front.envoy.post("/v1/translate", {}, x_request_id="first")
    front.envoy.post("/v1/translate?key=k", {}, x_request_id="second", x_client_id="billing")
    clients = {headers["x-request-id"]: headers["x-client-id"] for _, _, headers, _ in front.seen}
    assert clients == {"first": "127.0.0.1", "second": "billing"}

    def logged() -> dict[str, dict[str, Any]]:
        return {call["request_id"]: call for call in front.envoy.calls()}

    eventually(lambda: {"first", "second"} <= logged().keys(), "both calls are in the log")
    call = logged()["second"]
    assert (call["method"], call["http_status"]) == ("/v1/translate", 200)
    assert (call["client"], call["peer"]) == ("billing", "127.0.0.1")


def test_a_call_that_takes_too_long(tmp_path: Path) -> None:
    slow = Replica("slow")
    with (
        backend("a", Script()) as a,
        http_replica(slow) as port,
        envoy(tmp_path, [a.port], longest="0.2s", http_ports=[port]) as running,
    ):
        slow.goes_on.clear()
        found = running.post("/v1/translate", {})
    error(found, 504, grpc.StatusCode.DEADLINE_EXCEEDED)


def test_no_replica_is_left(tmp_path: Path) -> None:
    with backend("a", Script()) as a, envoy(tmp_path, [a.port]) as running:
        a.server.stop(None).wait()
        answer = error(running.post("/v1/translate", {}), 503, grpc.StatusCode.UNAVAILABLE)
        assert answer["message"] == "no healthy upstream"
        options = [("grpc.enable_retries", 0)]
        with (
            grpc.insecure_channel(running.address, options=options) as channel,
            pytest.raises(grpc.RpcError) as caught,
        ):
            TranslationServiceStub(channel).Translate(pb.TranslateRequest(), timeout=30)
        # To gRPC clients it is a status, and the message no JSON.
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert not (caught.value.details() or "").startswith("{")
        assert "x-request-id" in [item.key for item in caught.value.trailing_metadata() or ()]


def test_pages_of_allowed_origins_may_call_over_grpc_web(front: Front) -> None:
    path = "/dragoman.v1.TranslationService/Translate"
    ours, others = "http://localhost:5173", "https://elsewhere.example"
    for origin, allowed in ((ours, ours), (others, None)):
        about = {"origin": origin, "access_control_request_method": "POST"}
        _, headers, _ = front.envoy.post(path, None, "OPTIONS", **about)
        assert headers["access-control-allow-origin"] == allowed
    # Over HTTP the servers decide: the question reaches one.
    front.envoy.post("/v1/translate", None, "OPTIONS", origin=ours)
    ((method, _, headers, _),) = front.seen
    assert (method, headers["origin"]) == ("OPTIONS", ours)

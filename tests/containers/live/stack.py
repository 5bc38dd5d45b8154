"""docker/compose.yaml, running."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.containers.live.docker_engine import DockerEngine, eventually

ENVOY = "127.0.0.1:8080"
PROMETHEUS = "http://127.0.0.1:9090"
SERVICES = ("dragoman", "envoy", "prometheus")


@dataclass(frozen=True)
class Stack:
    """The service as its callers and operators see it."""

    docker: DockerEngine
    environment: dict[str, str]

    def replicas(self) -> list[str]:
        """The ids of the servers' containers."""
        return self.docker.compose("ps", "--quiet", "dragoman").split()

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        """HTTP status and JSON of a POST to Envoy."""
        request = urllib.request.Request(
            f"http://{ENVOY}{path}",
            json.dumps(body).encode(),
            {"content-type": "application/json", **headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as exc:
            return exc.code, json.load(exc)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What Prometheus answers to an expression."""
        url = f"{PROMETHEUS}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return list(json.load(response)["data"]["result"])
        except (OSError, urllib.error.URLError):  # it has not started yet
            return []


@contextlib.contextmanager
def running_stack(docker: DockerEngine, environment: dict[str, str]) -> Iterator[Stack]:
    """Bring it up until every replica is healthy and Envoy answers; take it down at the end."""
    chosen = {**environment, "DRAGOMAN_THREADS": "1"}
    docker.compose("up", "--detach", "--no-build", *SERVICES, **chosen)
    try:
        stack = Stack(docker, chosen)
        for replica in stack.replicas():
            docker.wait_healthy(replica)
        with channel() as open_channel:
            stub = TranslationServiceStub(open_channel)

            def answers() -> bool:
                try:
                    return bool(stub.ListModels(pb.ListModelsRequest(), timeout=5).models)
                except grpc.RpcError:
                    return False

            eventually(answers, "Envoy answers")
        yield stack
    finally:
        print(docker.compose("logs", "--tail", "40", *SERVICES))
        docker.compose("down", "--volumes", "--timeout", "40")


def channel(address: str = ENVOY) -> grpc.Channel:
    """A channel that retries nothing itself: what is lost here, Envoy has lost."""
    return grpc.insecure_channel(address, options=[("grpc.enable_retries", 0)])


@dataclass
class Load:
    """Callers that send one call after another until they are stopped.

    Attributes:
        answered: calls that were answered, by method.
        failed: what went wrong.
    """

    answered: dict[str, int] = field(default_factory=lambda: {"unary": 0, "stream": 0})
    failed: list[str] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def more(self, count: int, seconds: float = 120.0) -> None:
        """Wait until every method has been answered `count` times more."""
        with self._changed:
            goal = {method: number + count for method, number in self.answered.items()}

            def reached() -> bool:
                return all(self.answered[method] >= number for method, number in goal.items())

            assert self._changed.wait_for(reached, seconds), (self.answered, self.failed)

    def count(self, method: str, problem: str | None) -> None:
        """A call ended."""
        with self._changed:
            if problem is None:
                self.answered[method] += 1
            else:
                self.failed.append(problem)
            self._changed.notify_all()


@contextlib.contextmanager
def load(texts: list[str], *, unary: int = 6, streams: int = 2) -> Iterator[Load]:
    """Callers through Envoy: `unary` that translate, `streams` that stream.

    Every answer has to be what was answered at first, when nothing was wrong yet.
    """
    made, stopping = Load(), threading.Event()
    with channel() as shared:
        stub = TranslationServiceStub(shared)
        expected = {text: _translate(stub, text) for text in texts}

        def call(method: str, function: Callable[[Any, str], str], offset: int) -> None:
            position = offset
            while not stopping.is_set():
                text = texts[position % len(texts)]
                position += 1
                try:
                    found = function(stub, text)
                    same = found == expected[text]
                    made.count(method, None if same else f"{method}: {found!r} for {text!r}")
                except grpc.RpcError as exc:
                    made.count(method, f"{method}: {exc.code()}: {exc.details()}")

        threads = [
            threading.Thread(target=call, args=(method, function, number))
            for method, function, callers in (
                ("unary", _translate, unary),
                ("stream", _stream, streams),
            )
            for number in range(callers)
        ]
        for thread in threads:
            thread.start()
        try:
            yield made
        finally:
            stopping.set()
            for thread in threads:
                thread.join()


def _translate(stub: Any, text: str) -> str:
    response = stub.Translate(pb.TranslateRequest(contents=[text]), timeout=60)
    return str(response.translations[0].translated_text)


def _stream(stub: Any, text: str) -> str:
    responses = list(stub.StreamTranslate(pb.StreamTranslateRequest(content=text), timeout=60))
    assert responses[-1].HasField("summary")
    return "".join(response.delta.text for response in responses[:-1])

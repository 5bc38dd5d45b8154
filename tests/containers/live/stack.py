"""docker/compose.yaml, running."""

from __future__ import annotations

import contextlib
import itertools
import json
import operator
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from prometheus_client.parser import text_string_to_metric_families

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from service.settings import Settings
from tests.containers.live.docker_engine import DockerEngine
from tests.containers.waiting import eventually

ENVOY = "127.0.0.1:8080"
PROMETHEUS = "http://127.0.0.1:9090"
SERVICES = ("dragoman", "envoy", "prometheus")


@dataclass(frozen=True)
class Stack:
    """The running service, for callers and operators."""

    docker: DockerEngine
    environment: dict[str, str]

    def replicas(self) -> list[str]:
        """The ids of the servers' containers."""
        return self.docker.compose("ps", "--quiet", "dragoman").split()

    def metric(self, replica: str, name: str, **labels: str) -> float:
        """A metric of one replica as of now, from itself; 0 if it does not have it yet."""
        networks = self.docker.inspect(replica)["NetworkSettings"]["Networks"]
        (address,) = [network["IPAddress"] for network in networks.values()]
        url = f"http://{address}:{Settings.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as response:
            text = response.read().decode()
        samples = [
            item for family in text_string_to_metric_families(text) for item in family.samples
        ]
        found = [item.value for item in samples if (item.name, item.labels) == (name, labels)]
        return float(sum(found))

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
        """Prometheus' answer to an expression."""
        url = f"{PROMETHEUS}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return list(json.load(response)["data"]["result"])
        except (OSError, urllib.error.URLError):  # it has not started yet
            return []


@contextlib.contextmanager
def running_stack(docker: DockerEngine, environment: dict[str, str]) -> Iterator[Stack]:
    """Bring it up until every replica is healthy and Envoy answers; take it down at the end."""
    docker.compose("up", "--detach", "--no-build", *SERVICES, **environment)
    try:
        stack = Stack(docker, environment)
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
    """A channel without retries, so that a lost call was lost by Envoy."""
    return grpc.insecure_channel(address, options=[("grpc.enable_retries", 0)])


@dataclass
class Load:
    """Callers that send one call after another until they are stopped.

    Attributes:
        answered: calls that were answered, of each caller.
        failed: what went wrong.
    """

    answered: list[int]
    failed: list[str] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def more(self, count: int, seconds: float = 300.0) -> None:
        """Wait until every caller has been answered `count` times more."""
        with self._changed:
            goal = [number + count for number in self.answered]

            def reached() -> bool:
                return all(map(operator.ge, self.answered, goal))

            assert self._changed.wait_for(reached, seconds), (self.answered, self.failed)

    def count(self, caller: int, problem: str | None) -> None:
        """A call of a caller ended."""
        with self._changed:
            if problem is None:
                self.answered[caller] += 1
            else:
                self.failed.append(problem)
            self._changed.notify_all()


@contextlib.contextmanager
def load(
    texts: list[str], pages: list[str] | None = None, *, unary: int = 6, streams: int = 2
) -> Iterator[Load]:
    """Callers through Envoy: `unary` that translate texts, `streams` that stream pages, if any.

    Every answer has to be what was answered at first, when nothing was wrong yet. No more than one
    replica has rows for: with fewer, calls would be refused with reason.
    """
    callers = [(_translate, texts)] * unary + ([(_stream, pages)] * streams if pages else [])
    made, stopping = Load([0] * len(callers)), threading.Event()
    with channel() as shared:
        stub = TranslationServiceStub(shared)
        expected = {text: _translate(stub, text, "first") for text in (*texts, *(pages or ()))}

        def call(caller: int) -> None:
            function, own = callers[caller]
            client = f"caller-{caller}"
            for text in itertools.islice(itertools.cycle(own), caller % len(own), None):
                if stopping.is_set():
                    return
                try:
                    found = function(stub, text, client)
                    same = found == expected[text]
                    problem = None if same else f"{found!r} for {text!r}"
                except grpc.RpcError as exc:
                    problem = f"{exc.code()}: {exc.details()}"
                made.count(caller, problem and f"{function.__name__}: {problem}")

        threads = [threading.Thread(target=call, args=(caller,)) for caller in range(len(callers))]
        for thread in threads:
            thread.start()
        try:
            yield made
        finally:
            stopping.set()
            for thread in threads:
                thread.join()


def _translate(stub: Any, text: str, client: str) -> str:
    request, metadata = pb.TranslateRequest(contents=[text]), [("x-client-id", client)]
    response = stub.Translate(request, timeout=60, metadata=metadata)
    return str(response.translations[0].translated_text)


def _stream(stub: Any, text: str, client: str) -> str:
    request, metadata = pb.StreamTranslateRequest(content=text), [("x-client-id", client)]
    responses = list(stub.StreamTranslate(request, timeout=60, metadata=metadata))
    assert responses[-1].HasField("summary")
    return "".join(response.delta.text for response in responses[:-1])

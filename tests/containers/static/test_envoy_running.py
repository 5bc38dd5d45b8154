"""Envoy's behaviour with docker/envoy/envoy.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from service.fronts.dragoman.servicer import SERVICE
from tests.containers.static.envoy_process import SERVING, Backend, Script, backend, envoy
from tests.containers.waiting import eventually
from tests.robustness.envoy import Envoy

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@dataclass(frozen=True)
class Front:
    """Envoy with two replicas behind it, a and b."""

    stub: Any
    script: Script
    envoy: Envoy
    backends: dict[str, Backend]


@pytest.fixture
def front(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Front]:
    """Envoy and its replicas; a parameter is the time between health checks."""
    script = Script()
    with (
        backend("a", script) as a,
        backend("b", script) as b,
        envoy(
            tmp_path, [a.port, b.port], check_interval=getattr(request, "param", None)
        ) as running,
        grpc.insecure_channel(running.address, options=[("grpc.enable_retries", 0)]) as channel,
    ):
        yield Front(TranslationServiceStub(channel), script, running, {"a": a, "b": b})


def translate(front: Front, **options: Any) -> str:
    response = front.stub.Translate(pb.TranslateRequest(), **{"timeout": 30, **options})
    return str(response.model)


@pytest.mark.parametrize("code", [UNAVAILABLE, grpc.StatusCode.CANCELLED])
def test_a_call_that_failed_before_its_answer_goes_to_the_other_replica(
    front: Front, code: grpc.StatusCode
) -> None:
    front.script.codes.append(code)
    answered_by = translate(front)
    assert len(front.script.replicas) == 2
    assert set(front.script.replicas) == {"a", "b"}
    assert answered_by == front.script.replicas[-1]


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
    ],
)
def test_what_another_try_would_not_help_is_not_tried_again(
    front: Front, code: grpc.StatusCode
) -> None:
    front.script.codes.append(code)
    with pytest.raises(grpc.RpcError) as caught:
        translate(front)
    assert caught.value.code() is code
    assert len(front.script.replicas) == 1


def test_tries_have_an_end(front: Front) -> None:
    front.script.codes.extend([UNAVAILABLE] * 100)
    with pytest.raises(grpc.RpcError) as caught:
        translate(front)
    assert caught.value.code() is UNAVAILABLE
    assert len(front.script.replicas) == 5


def test_a_stream_is_tried_again_only_before_its_first_piece(front: Front) -> None:
    front.script.codes.append(UNAVAILABLE)
    at_once = pb.StreamTranslateRequest(content="fail at once")
    pieces = [item.delta.text for item in front.stub.StreamTranslate(at_once, timeout=30)]
    assert pieces == [front.script.replicas[1]]

    front.script.replicas.clear()
    front.script.codes.append(UNAVAILABLE)
    stream = front.stub.StreamTranslate(pb.StreamTranslateRequest(), timeout=30)
    assert next(stream).delta.text == front.script.replicas[0]
    with pytest.raises(grpc.RpcError) as caught:
        next(stream)
    assert caught.value.code() is UNAVAILABLE
    assert len(front.script.replicas) == 1


def test_the_callers_deadline_goes_on_to_the_replica(front: Front) -> None:
    translate(front, timeout=20)
    translate(front, timeout=600)
    first, second = front.script.seconds_left
    # gRPC sends a timeout in few digits, rounded up: by less than a fiftieth.
    assert first is not None
    assert 0 < first <= 20 * 1.02
    # Also one that is longer than what calls without a deadline get.
    assert second is not None
    assert 300 < second <= 600 * 1.02


def test_replicas_tell_callers_apart(front: Front) -> None:
    translate(front)
    translate(front, metadata=[("x-client-id", "billing")])
    assert [seen["x-client-id"] for seen in front.script.metadata] == ["127.0.0.1", "billing"]


def test_a_replica_that_drains_gets_no_calls(front: Front) -> None:
    front.backends["a"].health.set(SERVICE, NOT_SERVING)
    eventually(lambda: {translate(front) for _ in range(8)} == {"b"}, "calls go to the other one")
    front.backends["a"].health.set(SERVICE, SERVING)
    eventually(lambda: {translate(front) for _ in range(8)} == {"a", "b"}, "it gets calls again")


def test_replicas_that_are_too_busy_for_health_checks_still_get_calls(front: Front) -> None:
    for each in front.backends.values():
        each.health.set(SERVICE, NOT_SERVING)
    eventually(lambda: front.envoy.figure("membership_healthy") == 0, "none is healthy")
    assert translate(front) in front.backends


def test_deadlines_that_were_too_short_make_no_bad_replica(front: Front) -> None:
    front.script.codes.extend([grpc.StatusCode.DEADLINE_EXCEEDED] * 30)
    for _ in range(30):
        with pytest.raises(grpc.RpcError):
            translate(front)
    assert {translate(front) for _ in range(20)} == {"a", "b"}
    assert front.envoy.figure("outlier_detection.ejections_enforced_total") == 0


@pytest.mark.parametrize("front", ["3600s"], indirect=True)
def test_a_replica_that_died_is_left_before_a_health_check_tells(front: Front) -> None:
    front.backends["a"].server.stop(None).wait()
    assert {translate(front) for _ in range(20)} == {"b"}
    assert front.envoy.figure("outlier_detection.ejections_enforced_total") == 1

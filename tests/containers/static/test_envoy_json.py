"""JSON over HTTP as Envoy answers it by docker/envoy/envoy.yaml and check_json.lua."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message as Headers
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.containers.static.envoy_process import Envoy, Script, backend, envoy
from tests.containers.waiting import eventually

BODIES: dict[str, Any] = {
    "/v1/translate": pb.TranslateRequest,
    "/v1/translate:stream": pb.StreamTranslateRequest,
    "/v1/score": pb.ScoreRequest,
    "/v1/attention": pb.AttentionRequest,
}
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_STRING: TEXT,
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(allow_nan=False, allow_infinity=False),
}


@dataclass(frozen=True)
class Front:
    """Envoy with one replica behind it."""

    envoy: Envoy
    script: Script


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    script = Script()
    directory = tmp_path_factory.mktemp("envoy")
    with backend("a", script) as a, envoy(directory, [a.port]) as running:
        yield Front(running, script)


def of_type(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if (message := field.message_type) is not None:
        return st.deferred(lambda: fields_of(message))
    if field.enum_type is not None:
        return st.sampled_from([value.name for value in field.enum_type.values])
    return SCALARS[field.cpp_type]


def fields_of(message: Descriptor) -> st.SearchStrategy[dict[str, Any]]:
    """Any message of a type, as a dictionary of the contract's names."""
    some = {
        field.name: st.lists(of_type(field), max_size=3) if field.is_repeated else of_type(field)
        for field in message.fields
    }
    return st.fixed_dictionaries({}, optional=some)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, Message]:
    """A path, and a request of its type."""
    path = draw(st.sampled_from(sorted(BODIES)))
    return path, json_format.ParseDict(draw(fields_of(BODIES[path].DESCRIPTOR)), BODIES[path]())


@given(requests(), st.booleans(), st.booleans(), st.sampled_from([None, 2]))
@settings(max_examples=25, deadline=None)
def test_every_request_arrives_as_it_is(
    front: Front, sent: tuple[str, Message], proto_names: bool, ascii_only: bool, indent: int | None
) -> None:
    path, request = sent
    body = json_format.MessageToJson(
        request, preserving_proto_field_name=proto_names, ensure_ascii=ascii_only, indent=indent
    )
    status, _, answer = front.envoy.post(path, body.encode())
    assert status == 200, answer
    assert front.script.requests[-1] == request


def places(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in some JSON, with what an error calls a field of it."""
    if isinstance(value, dict):
        yield path, value
        for name, item in value.items():
            yield from places(item, f"{path}{name}.")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, f"{path[:-1]}[{index}].")


@given(requests(), st.data())
@settings(max_examples=25, deadline=None)
def test_an_unknown_field_anywhere_is_an_error_that_names_it(
    front: Front, sent: tuple[str, Message], data: st.DataObject
) -> None:
    path, request = sent
    body = json_format.MessageToDict(request)
    where, place = data.draw(st.sampled_from(list(places(body))))
    name = data.draw(st.sampled_from(["target_text", "beamsize", "max_newTokens", "Model", "é"]))
    place[name] = data.draw(st.sampled_from([None, 4, "x", [], {}, {"content": ["x"]}]))
    seen = len(front.script.requests)
    answer = error(front.envoy.post(path, body), 400, grpc.StatusCode.INVALID_ARGUMENT)
    (detail,) = answer["details"]
    assert detail["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    assert detail["fieldViolations"] == [{"field": where + name, "description": answer["message"]}]
    assert answer["message"].startswith(f"{where}{name}: no such field")
    assert len(front.script.requests) == seen


def error(found: tuple[int, Headers, Any], status: int, code: grpc.StatusCode) -> Any:
    """The body of an error, which has the one shape that they all have, and an id."""
    got, headers, answer = found
    assert got == status, answer
    assert headers["content-type"] == "application/json"
    assert headers["x-request-id"]
    assert set(answer) == {"code", "message", "details"}
    assert answer["code"] == code.value[0]
    assert answer["message"]
    return answer


def test_an_option_at_the_wrong_place_says_what_there_is(front: Front) -> None:
    body = {"contents": ["A dog."], "options": {"beamSize": 4}}
    answer = error(front.envoy.post("/v1/translate", body), 400, grpc.StatusCode.INVALID_ARGUMENT)
    assert answer["message"] == (
        "options.beamSize: no such field in TranslateOptions, which has adapt_letter_case, "
        "allow_pivot, ignore_tags, max_new_tokens, num_hypotheses, priority, return_alignments, "
        "return_tokens, search, split_sentences, verbatim"
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"contents": ["x"]',
        b'{"contents": ["x"]} {}',
        b'{"contents": ["x"],}',
        b'{"contents": ["x",]}',
        b'{"contents" ["x"]}',
        b"{'contents': ['x']}",
        b'{contents: ["x"]}',
        b'{"contents": [x]}',
        b'{"contents": ["x\\"]}',
        b'{"contents": ["\xff"]}',
        b'{"contents": [1]}',
        b'{"contents": [{}]}',
        b'{"contents": ["x"], "options": "fast"}',
        b'{"contents": ["x"], "options": {"priority": "URGENT"}}',
        b'{"contents": ' + b"[" * 100_000,
        b'{"contents": "' + b"\\" * 100_001,
        b'{"contents": [' + b'"",' * 200_000 + b'""]}',
        b"[]",
        b"null",
        b"contents=x",
        b"\x00",
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
def test_what_is_not_json_or_has_wrong_types_is_an_error(front: Front, body: bytes) -> None:
    error(front.envoy.post("/v1/translate", body), 400, grpc.StatusCode.INVALID_ARGUMENT)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/v1/translate?beamSize=4", 400, grpc.StatusCode.INVALID_ARGUMENT),
        ("POST", "/", 404, grpc.StatusCode.NOT_FOUND),
        ("POST", "/v1/translat", 404, grpc.StatusCode.NOT_FOUND),
        # Not taken for what it resembles, past the check.
        ("POST", "/v1/translate/", 404, grpc.StatusCode.NOT_FOUND),
        ("POST", "/v1/translate%3Astream", 404, grpc.StatusCode.NOT_FOUND),
        ("GET", "/v1/models/a/b", 404, grpc.StatusCode.NOT_FOUND),
        ("POST", "/dragoman.v1.TranslationService/Translate", 404, grpc.StatusCode.NOT_FOUND),
        ("GET", "/v1/translate", 405, grpc.StatusCode.UNIMPLEMENTED),
        ("POST", "/v1/models", 405, grpc.StatusCode.UNIMPLEMENTED),
        ("POST", "/v1/languages", 405, grpc.StatusCode.UNIMPLEMENTED),
        ("DELETE", "/v1/models/a", 405, grpc.StatusCode.UNIMPLEMENTED),
    ],
)
def test_paths_and_methods_that_there_are_not(
    front: Front, method: str, path: str, status: int, code: grpc.StatusCode
) -> None:
    found = front.envoy.post(path, {"contents": ["x"]}, method)
    error(found, status, code)
    assert bool(found[1]["allow"]) == (status == 405)


def test_a_body_that_is_too_large(front: Front) -> None:
    body = b'{"contents": ["' + b"x" * 2**25 + b'"]}'
    error(front.envoy.post("/v1/translate", body), 413, grpc.StatusCode.RESOURCE_EXHAUSTED)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 400),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 429),
        (grpc.StatusCode.INTERNAL, 500),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 504),
    ],
)
def test_errors_of_servers_have_the_same_shape(
    front: Front, code: grpc.StatusCode, status: int
) -> None:
    front.script.codes.append(code)
    answer = error(front.envoy.post("/v1/translate", {"contents": ["x"]}), status, code)
    assert answer["message"] == "as the script says"


def test_the_request_id_is_the_servers_and_the_clients(front: Front) -> None:
    ids = []
    for path in BODIES:
        status, headers, _ = front.envoy.post(path, {})
        assert status == 200
        assert headers["x-request-id"] == front.script.metadata[-1]["x-request-id"]
        ids.append(headers["x-request-id"])
    assert len(set(ids)) == len(BODIES)
    # One of a form that others may take for theirs, and change.
    for own in ("order:17/b", "7b0ac0a2-7a34-4d8c-8a49-5c7bb2b8a3ff"):
        for body in ({}, {"target_text": "x"}):
            _, headers, _ = front.envoy.post("/v1/translate", body, x_request_id=own)
            assert headers["x-request-id"] == own
        assert front.script.metadata[-1]["x-request-id"] == own


def test_the_log_names_request_client_and_peer(front: Front) -> None:
    about = {"x_client_id": "billing", "x_forwarded_for": "192.0.2.1"}
    front.envoy.post("/v1/translate", {}, x_request_id="mine", **about)
    assert front.script.metadata[-1]["x-client-id"] == "billing"
    front.envoy.post("/v1/translate", {"x": 1}, x_request_id="wrong")

    def logged() -> bool:
        return {"mine", "wrong"} <= {call["request_id"] for call in front.envoy.calls()}

    eventually(logged, "both calls are in the log")
    calls = {call["request_id"]: call for call in front.envoy.calls()}
    assert calls["mine"]["method"] == "/v1/translate"
    assert calls["mine"]["http_status"] == 200
    assert calls["mine"]["client"] == "billing"
    assert calls["mine"]["peer"] == "127.0.0.1"
    assert calls["wrong"]["http_status"] == 400


@pytest.mark.parametrize("path", [*BODIES, "/v1/models", "/v1/languages"])
def test_pages_of_allowed_origins_may_call(front: Front, path: str) -> None:
    asked = "POST" if path in BODIES else "GET"
    ours, others = "http://localhost:5173", "https://elsewhere.example"
    for origin, allowed in ((ours, ours), (others, None)):
        about = {"origin": origin, "access_control_request_method": asked}
        status, headers, _ = front.envoy.post(path, None, "OPTIONS", **about)
        assert headers["access-control-allow-origin"] == allowed
        assert status == (200 if allowed else 405)


def test_a_call_that_takes_too_long(tmp_path: Path) -> None:
    script = Script()
    with backend("a", script) as a, envoy(tmp_path, [a.port], longest="0.2s") as running:
        script.go_on.clear()
        found = running.post("/v1/translate", {"contents": ["x"]})
        script.go_on.set()
    error(found, 504, grpc.StatusCode.DEADLINE_EXCEEDED)


def test_no_replica_is_left(tmp_path: Path) -> None:
    with backend("a", Script()) as a, envoy(tmp_path, [a.port]) as running:
        a.server.stop(None).wait()
        answer = error(running.post("/v1/translate", {}), 503, grpc.StatusCode.UNAVAILABLE)
        options = [("grpc.enable_retries", 0)]
        with (
            grpc.insecure_channel(running.address, options=options) as channel,
            pytest.raises(grpc.RpcError) as caught,
        ):
            TranslationServiceStub(channel).Translate(pb.TranslateRequest(), timeout=30)
        # To gRPC clients the same is a status, and its message no JSON.
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert caught.value.details() == answer["message"]
        assert "x-request-id" in [item.key for item in caught.value.trailing_metadata() or ()]

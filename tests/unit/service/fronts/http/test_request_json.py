"""Requests in JSON: what protobuf writes is read back, and nothing else does any harm."""

import contextlib
import json
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.v1 import translation_pb2 as pb
from service.calls.request_parsing import RequestParser
from service.errors import InvalidArgumentError
from service.fronts.http.request_json import JsonRequestParser, without_duplicates
from service.fronts.status import status_of

MAX_TEXTS = 16
PARSER = JsonRequestParser(
    RequestParser("dragoman.v1.TranslationService", {"contents": MAX_TEXTS, "pairs": MAX_TEXTS})
)
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=MAX_TEXTS)


@settings(max_examples=50)
@given(TEXTS, st.booleans(), st.booleans(), st.floats(0, 1), st.integers(0, 2**64 - 1))
def test_what_protobuf_writes_is_read_back(
    texts: list[str], in_camel_case: bool, in_ascii: bool, top_p: float, seed: int
) -> None:
    message = pb.TranslateRequest(contents=texts, source_language_code="en")
    message.options.search.sampling.top_p = top_p
    message.options.search.sampling.seed = seed
    message.options.priority = pb.PRIORITY_HIGH
    fields = json_format.MessageToDict(message, preserving_proto_field_name=not in_camel_case)
    written = json.dumps(fields, ensure_ascii=in_ascii, indent=seed % 3)
    assert PARSER.parse("Translate", written.encode()) == message


NAMES = st.sampled_from(
    [
        *("contents", "options", "search", "beamSize", "beam_size", "sampling", "seed", "pairs"),
        *("priority", "lengthPenalty", "x", "", "\ud800"),
    ]
)
# With halves of surrogate pairs, which JSON can write and UTF-8 can't.
STRINGS = st.text(st.characters(), max_size=5) | st.just("\ud800")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | STRINGS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50)
@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_any_json_is_read_or_refused(fields: dict[str, Any]) -> None:
    data, refused = json.dumps(fields).encode(), None
    try:
        PARSER.parse("Translate", data)
    except InvalidArgumentError as error:
        refused = error
    if refused is not None:
        assert status_of(refused, "").code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        assert refused.field.encode()


@settings(max_examples=50)
@given(st.binary(max_size=40) | st.text('{}[]",:\\u0123eE+-. contets', max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(InvalidArgumentError):
        PARSER.parse("Translate", data)


@pytest.mark.parametrize(
    ("value", "kind"), [("hello", "a string"), ({"a": 1}, "an object"), (1, "a number")]
)
def test_a_list_that_is_none_is_named_without_its_content(value: Any, kind: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        PARSER.parse("Translate", json.dumps({"contents": value}).encode())
    assert (refused.value.field, refused.value.description) == (
        "contents",
        f"must be a list, not {kind}",
    )


def test_an_empty_name_is_shown() -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        PARSER.parse("Translate", b'{"options": {"": 1}}')
    assert refused.value.field == 'options.""'


def test_whole_surrogate_pairs_are_characters() -> None:
    message = PARSER.parse("Translate", b'{"contents": ["\\ud83d\\uDE00"]}')
    assert list(message.contents) == ["\U0001f600"]  # type: ignore[attr-defined]


def test_names_are_compared_in_one_pass() -> None:
    compared = 0

    class Name(str):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    names = [Name(number) for number in range(1000)]
    with pytest.raises(InvalidArgumentError) as refused:
        without_duplicates([(name, 1) for name in [*names, Name("999")]])
    assert refused.value.field == "999"
    assert compared < 10 * len(names)


def test_commas_and_brackets_in_texts_are_no_values() -> None:
    texts = ['[{",\\'] * MAX_TEXTS
    long = ["[{," * 100_000]
    for contents in (texts, long):
        data = json.dumps({"contents": contents}).encode()
        assert list(PARSER.parse("Translate", data).contents) == contents  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "piece", [b"[", b"{", b",", b'"",', b'{"":', b"[],", b'"', b'\\"', b"9", b"\\"]
)
@pytest.mark.parametrize("start", [b"", b'{"contents":[', b'{"contents":"'])
def test_large_bodies_are_refused(start: bytes, piece: bytes) -> None:
    size = 4 * 2**20
    with pytest.raises(InvalidArgumentError):
        PARSER.parse("Translate", start + piece * (size // len(piece)))

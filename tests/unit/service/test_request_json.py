"""Requests in JSON: what protobuf writes is read back, and nothing else does any harm."""

import contextlib
import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.v1 import translation_pb2 as pb
from service.api.http.request_json import JsonRequestParser
from service.api.request_parsing import RequestParser
from service.errors import InvalidArgumentError

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
    ["contents", "options", "search", "beamSize", "beam_size", "sampling", "seed", "pairs", "x", ""]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50)
@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_any_json_is_read_or_refused(fields: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidArgumentError):
        PARSER.parse("Translate", json.dumps(fields).encode())


@settings(max_examples=50)
@given(st.binary(max_size=40) | st.text('{}[]",:\\u0123eE+-. contets', max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(InvalidArgumentError):
        PARSER.parse("Translate", data)


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

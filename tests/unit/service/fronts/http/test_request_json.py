"""Requests and messages in JSON: what protobuf writes is read back, and nothing else passes."""

import base64
import contextlib
import json
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.v1 import translation_pb2 as pb
from service.calls.request_parsing import RequestParser
from service.errors import InvalidArgumentError
from service.fronts.http.message_json import to_json
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


@settings(max_examples=50)
@given(
    st.binary(max_size=50),
    st.booleans(),
    st.sampled_from(["", "\n"]),
    st.integers(0, 70),
    st.data(),
)
def test_bytes_are_base64_and_nothing_else(
    content: bytes, for_urls: bool, line_end: str, place: int, data: st.DataObject
) -> None:
    encode = base64.urlsafe_b64encode if for_urls else base64.b64encode
    written = encode(content).decode() + line_end
    body = json.dumps({"content": written}).encode()
    assert PARSER.parse("TranslateDocument", body) == pb.TranslateDocumentRequest(content=content)
    wrong = data.draw(st.sampled_from("@!.ä%"))
    place = min(place, len(written))
    body = json.dumps({"content": written[:place] + wrong + written[place:]}).encode()
    with pytest.raises(InvalidArgumentError, match=f"not base64: '{wrong}' at {place}") as caught:
        PARSER.parse("TranslateDocument", body)
    assert caught.value.field == "content"


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


# --- messages -------------------------------------------------------------------------------------

# Within what protobuf's parser takes; and -0 is 0 in JSON for many parsers.
NUMBERS = st.floats(-(2.0**126), 2.0**126, width=32).map(lambda number: number + 0.0)
FLOATS = st.lists(NUMBERS | st.sampled_from([float("nan"), float("inf")]), max_size=20)


@settings(max_examples=20)
@given(st.lists(FLOATS, max_size=4), st.text(st.characters(exclude_categories=["Cs"])))
def test_it_is_read_back_to_the_last_bit(lists: list[list[float]], text: str) -> None:
    message = pb.AttentionResponse(model=text)
    for values in lists:
        message.matrices.add(num_columns=3).weights.extend(values)
    large = pb.AttentionResponse()
    large.CopyFrom(message)
    large.matrices.add().weights.extend(np.random.default_rng(0).random(5000, np.float32) ** 9)
    for each in (message, large):
        before = each.SerializeToString(deterministic=True)
        again = json_format.Parse(to_json(each), pb.AttentionResponse())
        assert each.SerializeToString(deterministic=True) == before
        assert str(again) == str(each)  # nan is not equal to itself


def test_long_lists_are_numbers_in_their_place() -> None:
    message = pb.TranslateResponse()
    for number in range(3):
        alignment = message.translations.add().sentences.add().hypotheses.add().alignment
        alignment.rows.add(weights=[number, 0.5, 0.25] * 2000)
    expected = json_format.MessageToDict(message, always_print_fields_with_no_presence=True)
    assert json.loads(to_json(message)) == expected

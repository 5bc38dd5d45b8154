"""Requests are parsed like by protobuf's own parser, or refused before it reads them."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from dragoman.v1 import translation_pb2 as pb
from service.calls.request_parsing import RequestParser, UndecodableError
from service.errors import InvalidArgumentError

PARSER = RequestParser(
    "dragoman.v1.TranslationService",
    {"contents": 50, "pairs": 50, "suppressed_tokens": 30},
)
PADDING = "ä" * 10_000  # makes a message one that is looked at before it is parsed

texts = st.text(max_size=20)
translate_requests = st.builds(
    pb.TranslateRequest,
    model=st.just(PADDING),
    contents=st.lists(texts, max_size=50),
    options=st.builds(
        pb.TranslateOptions,
        max_new_tokens=st.integers(0, 2**31 - 1),
        search=st.builds(
            pb.SearchOptions,
            suppressed_tokens=st.lists(texts, max_size=30),
            length_penalty=st.floats(width=32, allow_nan=False),
            sampling=st.builds(pb.Sampling, seed=st.integers(0, 2**64 - 1)),
        ),
    ),
)
score_requests = st.builds(
    pb.ScoreRequest,
    model=st.just(PADDING),
    pairs=st.lists(st.builds(pb.ScorePair, source_text=texts, translated_text=texts), max_size=50),
)


@given(translate_requests)
def test_a_request_within_the_limits_is_parsed(request: pb.TranslateRequest) -> None:
    assert PARSER.parse("Translate", request.SerializeToString()) == request


@given(score_requests)
def test_pairs_within_the_limits_are_parsed(request: pb.ScoreRequest) -> None:
    assert PARSER.parse("Score", request.SerializeToString()) == request


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_parsed_or_refused(junk: bytes, is_large: bool) -> None:
    data = pb.TranslateRequest(model=PADDING).SerializeToString() * is_large + junk
    try:
        expected = pb.TranslateRequest.FromString(data)
    except DecodeError:
        with pytest.raises(UndecodableError, match=r"^request: not a dragoman\.v1\.TranslateR"):
            PARSER.parse("Translate", data)
        return
    try:
        assert PARSER.parse("Translate", data) == expected
    except UndecodableError:
        # Stricter than protobuf with large messages: no groups, which the contract has none of.
        assert is_large


@given(st.data())
def test_a_message_that_is_cut_off_is_refused(data: st.DataObject) -> None:
    whole = pb.TranslateRequest(contents=["A dog."], model=PADDING).SerializeToString()
    size = data.draw(st.integers(20_000, len(whole) - 1))
    with pytest.raises(UndecodableError):
        PARSER.parse("Translate", whole[:size])


@pytest.mark.parametrize(
    ("method", "message", "field", "limit"),
    [
        ("Translate", b"\x0a\x00" * 1_000_000, "contents", "50"),
        ("Score", b"\x0a\x00" * 1_000_000, "pairs", "50"),
        # Within nested messages, and spread over many of these: protobuf merges them.
        (
            "Translate",
            pb.TranslateRequest(
                model=PADDING,
                options=pb.TranslateOptions(search=pb.SearchOptions(suppressed_tokens=["a"] * 31)),
            ).SerializeToString(),
            "options.search.suppressed_tokens",
            "30",
        ),
        (
            "Translate",
            pb.TranslateRequest(
                options=pb.TranslateOptions(search=pb.SearchOptions(suppressed_tokens=["a" * 999]))
            ).SerializeToString()
            * 31,
            "options.search.suppressed_tokens",
            "30",
        ),
        # Fields that are not in the contract.
        ("Translate", b"\xf8\x7f\x01" * 100_000, "request", "1,000"),
        ("ListModels", b"\xf8\x7f\x01" * 100_000, "request", "1,000"),
    ],
)
def test_too_many_entries_are_refused_by_name(
    method: str, message: bytes, field: str, limit: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        PARSER.parse(method, message)
    assert caught.value.field == field
    assert limit in caught.value.description

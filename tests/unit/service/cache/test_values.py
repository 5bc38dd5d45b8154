"""Results as bytes: all that others may have written instead is a miss."""

from __future__ import annotations

import dataclasses
import math
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cache.values import decode_result, encode_result, is_complete
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Hypothesis,
    ScoringRequest,
    SearchOptions,
)
from service.errors import InternalError

KEY = b"k" * 32
SOURCE = (5, 6, 7, 3)
VOCABULARY = 40
BEAM = GenerationRequest(SOURCE, SearchOptions(beam_size=4, num_hypotheses=3))
SCORE = ScoringRequest(SOURCE, target_ids=(8, 9, 3), alignment="hard")
NUMBERS = st.floats(allow_nan=False)


@st.composite
def hypotheses(draw: st.DrawFn) -> Hypothesis:
    ids = draw(st.lists(st.integers(0, VOCABULARY - 1), max_size=9))
    ended = draw(st.booleans())
    count = len(ids) + ended
    numbers = draw(st.lists(NUMBERS, min_size=count, max_size=count))
    return Hypothesis(ids, numbers, draw(NUMBERS), draw(NUMBERS), ended)


def result_of(found: list[Hypothesis], reason: FinishReason = FinishReason.EOS) -> GenerationResult:
    return GenerationResult(found[0].token_ids, reason, found[0].log_probability, found)


def bits(result: GenerationResult | None) -> object:
    """All that is kept of a result, with each number's bits."""
    assert result is not None
    return (
        result.token_ids,
        result.finish_reason,
        struct.pack("d", result.log_probability),
        [
            (
                each.token_ids,
                struct.pack("2d", each.log_probability, each.score),
                struct.pack(f"{len(each.token_log_probabilities)}d", *each.token_log_probabilities),
                each.ended,
                None if each.linked is None else each.linked.tolist(),
            )
            for each in result.hypotheses
        ],
    )


@given(
    st.lists(hypotheses(), min_size=1, max_size=3),
    st.sampled_from([FinishReason.EOS, FinishReason.LENGTH]),
)
def test_a_result_comes_back_bit_by_bit(found: list[Hypothesis], reason: FinishReason) -> None:
    result = result_of(found, reason)
    assert bits(decode_result(KEY, encode_result(KEY, result), BEAM, VOCABULARY)) == bits(result)


def scored() -> GenerationResult:
    linked = np.array([0, 3], np.int32)
    return result_of([Hypothesis([8, 9], [-0.1, -0.2, -0.3], -0.6, -0.6, True, linked)])


def test_links_come_back() -> None:
    found = decode_result(KEY, encode_result(KEY, scored()), SCORE, VOCABULARY)
    assert bits(found) == bits(scored())


def test_every_damage_is_a_miss() -> None:
    value = encode_result(KEY, scored())
    assert decode_result(b"x" * 32, value, SCORE, VOCABULARY) is None
    for size in range(len(value)):
        assert decode_result(KEY, value[:size], SCORE, VOCABULARY) is None
    for place in range(len(value)):
        changed = bytes([*value[:place], value[place] ^ 1, *value[place + 1 :]])
        assert decode_result(KEY, changed, SCORE, VOCABULARY) is None
    assert decode_result(KEY, value + b"\0", SCORE, VOCABULARY) is None


@given(st.binary(max_size=200))
def test_foreign_values_are_misses(foreign: bytes) -> None:
    for request in (BEAM, SCORE):
        assert decode_result(KEY, foreign, request, VOCABULARY) is None
        body = b"\1" + foreign  # with our version and a valid checksum
        forged = struct.pack("<I", zlib.crc32(body, zlib.crc32(KEY))) + body
        found = decode_result(KEY, forged, request, VOCABULARY)
        assert found is None or encode_result(KEY, found)  # at least something that can be read


GOOD = Hypothesis([8, 9], [-0.1, -0.2, -0.3], -0.6, -0.6, True)


@pytest.mark.parametrize(
    "found",
    [
        [GOOD] * 4,
        [dataclasses.replace(GOOD, token_ids=[8, VOCABULARY])],
        [dataclasses.replace(GOOD, token_ids=[8, -1])],
        [dataclasses.replace(GOOD, token_log_probabilities=[-0.1])],
        [dataclasses.replace(GOOD, token_log_probabilities=[-0.1] * 4)],
        [dataclasses.replace(GOOD, linked=np.zeros(2, np.int32))],
    ],
)
def test_a_result_that_does_not_fit_its_request_is_a_miss(found: list[Hypothesis]) -> None:
    value = encode_result(KEY, result_of(found))
    assert decode_result(KEY, value, BEAM, VOCABULARY) is None


@pytest.mark.parametrize("linked", [None, [0], [0, 4], [-1, 0]])
def test_links_that_do_not_fit_are_a_miss(linked: list[int] | None) -> None:
    array = None if linked is None else np.array(linked, np.int32)
    value = encode_result(KEY, result_of([dataclasses.replace(GOOD, linked=array)]))
    assert decode_result(KEY, value, SCORE, VOCABULARY) is None


@pytest.mark.parametrize("reason", FinishReason)
def test_only_whole_searches_are_complete(reason: FinishReason) -> None:
    result = result_of([GOOD], reason)
    assert is_complete(result) == (reason in (FinishReason.EOS, FinishReason.LENGTH))
    assert not is_complete(dataclasses.replace(result, error=InternalError("no")))
    assert not is_complete(dataclasses.replace(result, hypotheses=[]))


def test_infinities_come_back() -> None:
    low = dataclasses.replace(GOOD, token_log_probabilities=[-math.inf, -0.0, 0.0])
    value = encode_result(KEY, result_of([low]))
    assert bits(decode_result(KEY, value, BEAM, VOCABULARY)) == bits(result_of([low]))

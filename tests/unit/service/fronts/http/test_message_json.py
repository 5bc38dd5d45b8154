"""Messages as JSON are what protobuf reads back."""

import json

import numpy as np
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.v1 import translation_pb2 as pb
from service.fronts.http.message_json import to_json

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

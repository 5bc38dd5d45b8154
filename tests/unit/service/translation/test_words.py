"""Words of tokens."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.bundle.spans import Span
from service.translation.words import word_indices

# Tokens between bars.
EXAMPLES = [
    ("The| ani|mal| did|n|'|t| cross|.", ["The", "animal", "didn't", "cross", "."]),
    ("«|Ja|!|»| sagte| er|,| 3|.|5", ["«", "Ja", "!»", "sagte", "er", ",", "3.5"]),
    ("我|喜欢|。", ["我", "喜欢", "。"]),
    ("OPUS|模型| 2", ["OPUS", "模型", "2"]),
    ("...| -- |", ["...", "--"]),
    (" a| b ", ["a", "b"]),
    ("مرحبا| با|لعالم|!", ["مرحبا", "بالعالم", "!"]),
]


def spans_of(bars: str) -> tuple[str, list[Span]]:
    spans, text = [], ""
    for token in bars.split("|"):
        begin = len(text) + len(token) - len(token.lstrip())
        end = len(text) + len(token.rstrip())
        text += token
        spans.append(Span(min(begin, end), end) if token.strip() else Span(len(text), len(text)))
    return text, spans


@pytest.mark.parametrize(("bars", "expected"), EXAMPLES)
def test_examples(bars: str, expected: list[str]) -> None:
    text, spans = spans_of(bars)
    words = word_indices(text, spans)
    found = [""] * (max(words) + 1)
    for span, word in zip(spans, words, strict=True):
        found[word] += text[span.start : span.end].strip()
    assert found == expected


def test_bytes_of_a_character_are_one_word() -> None:
    # A character of three bytes between letters, then one after a space.
    spans = [Span(0, 1), Span(1, 1), Span(1, 1), Span(1, 2), Span(3, 3), Span(3, 4)]
    assert word_indices("aቢ ቢ", spans) == [0, 0, 0, 0, 1, 1]


@given(st.lists(st.sampled_from(["a", " b", ",", "我", "", " ", "(", " ("])))
def test_words_are_counted_without_gaps(tokens: list[str]) -> None:
    text, spans = spans_of("|".join(tokens)) if tokens else ("", [])
    words = word_indices(text, spans)
    assert len(words) == len(spans)
    assert words[:1] in ([], [0])
    assert all(later - earlier in (0, 1) for earlier, later in pairwise(words))
    # No word holds white space between its characters.
    for word in set(words):
        own = [span for span, of in zip(spans, words, strict=True) if of == word]
        assert not re.search(r"\S\s+\S", text[own[0].start : own[-1].end])

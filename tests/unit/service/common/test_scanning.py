from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.common.scanning import contains, matches
from service.things.patterns import ATOMIC

PATTERNS = {
    "words": re.compile(r"[a-z]{1,300}+(?=[^a-z]|\Z)"),
    "what stands before": re.compile(r"(?<![\w.])a[\w-]{0,60}\.(?!\w)"),
    "the start and the end": re.compile(r"\Aa+|b\Z"),
    "without a bound": re.compile(r"\d+"),
    "things": ATOMIC,
}
PARTS = ["a", "a.", "b", " ", "x y ", "7", "7" * 900, "1234 ", "a" * 200, "{{a}}", "{% if b %}"]
TEXTS = st.lists(st.tuples(st.sampled_from([*PARTS, " " * 500]), st.integers(1, 40)), max_size=40)


@pytest.mark.parametrize("name", PATTERNS)
@given(parts=TEXTS)
def test_matches_are_those_of_one_call(name: str, parts: list[tuple[str, int]]) -> None:
    pattern, text = PATTERNS[name], "".join(part * times for part, times in parts)[:30_000]
    expected = [match.span() for match in pattern.finditer(text)]
    assert [match.span() for match in matches(pattern, text)] == expected
    assert contains(pattern, text) is bool(expected)


class Recorded:
    """A pattern that records how many characters each call may look at."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.lengths: list[int] = []

    def search(self, text: str, start: int, end: int) -> re.Match[str] | None:
        self.lengths.append(end - start)
        return self._pattern.search(text, start, end)

    def match(self, text: str, start: int) -> re.Match[str] | None:
        return self._pattern.match(text, start)


@pytest.mark.parametrize("text", ["A 5. " * 20_000, "-" * 100_000, "{" * 100_000])
def test_no_call_looks_at_more_than_a_window(text: str) -> None:
    recorded = Recorded(ATOMIC)
    assert list(matches(recorded, text)) == []  # type: ignore[arg-type]
    assert max(recorded.lengths) <= 4096
    assert len(recorded.lengths) < len(text) / 2048

"""Languages that models translate into, hundreds of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from model.bundle.directions import Directions
from service.models.reachable import Reachable
from service.models.routing_rules import TranslatingModel, pivot_languages

CODES = [f"q{first}{second}" for first in "abcdefghijklmnop" for second in "abcdefghijklmnopqrst"]
STAR = [pair for code in CODES[:200] for pair in ((code, "en"), ("en", code))]


def models(*directions: Directions) -> list[TranslatingModel]:
    return [
        cast(TranslatingModel, SimpleNamespace(name=str(number), directions=each))
        for number, each in enumerate(directions)
    ]


def reachable(*directions: Directions) -> Reachable:
    made = models(*directions)
    return Reachable(made, pivot_languages(made))


def num_lines(call: Callable[[], object]) -> int:
    """Lines of code that a call runs: unlike seconds, they are the same on a busy machine."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "directions",
    [
        [Directions.one(*pair) for pair in STAR],
        [
            Directions(tuple(CODES[:200]), tuple(CODES[:200])),
            Directions(tuple(CODES[199:300]), tuple(CODES[199:300])),
        ],
    ],
    ids=["around English", "two models with one language in common"],
)
def test_no_code_runs_for_each_direction(directions: list[Directions]) -> None:
    made = models(*directions)
    pivots = pivot_languages(made)
    found = Reachable(made, pivots)
    assert sum(map(len, found.targets().values())) > 40_000
    assert num_lines(lambda: Reachable(made, pivots).targets()) < 35_000
    assert num_lines(lambda: Reachable(made, pivots).pivot_groups()) < 35_000


def test_a_language_is_not_translated_into_itself_however_it_is_spelled() -> None:
    found = reachable(
        Directions(("zh-hans", "de"), ("zh-Hans", "de", "en")), Directions.one("en", "zh-hans")
    )
    assert found.targets() == {
        "zh-hans": ["de", "en"],
        "de": ["zh-Hans", "en", "zh-hans"],
        "en": ["zh-hans", "zh-Hans", "de"],
    }


def test_a_model_of_one_language_corrects_it() -> None:
    assert reachable(Directions.one("en", "en")).targets() == {"en": ["en"]}

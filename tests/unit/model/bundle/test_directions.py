"""The directions of a model: what fits, what is chosen, and what a bundle says of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from model.bundle.directions import DirectionError, Directions

IDS = {"en": 5, "de": 6, "zh-Hans": 7, "zh-Hant": 8}
LANGUAGES = tuple(IDS)
MANY = Directions(LANGUAGES, LANGUAGES, IDS, "source", "target")
MARIAN = Directions(("en",), ("de", "fr"), {"de": 3, "fr": 4}, "target")
ONE = Directions.one("en", "de")
SAME = Directions.one("de", "de")  # a model of one's own may correct texts
ALL = pytest.mark.parametrize("directions", [MANY, MARIAN, ONE, SAME])


@ALL
def test_all_directions_fit_and_are_chosen(directions: Directions) -> None:
    pairs = list(directions)
    assert len(set(pairs)) == len(pairs) == directions.count
    assert directions.first in pairs
    for source, target in pairs:
        assert directions.fits(source.upper(), target.lower())
        assert directions.choose(source.upper(), target.lower()) == (source, target)
        assert directions.fits("", target)
        assert directions.fits(source, "")
    assert not directions.fits("en", "ja")
    assert not MANY.fits("en", "en")


@ALL
def test_a_bundle_keeps_them(directions: Directions) -> None:
    entry = json.loads(json.dumps(directions.to_dict()))
    assert Directions.from_dict(entry, 9) == directions


def test_tokens_of_a_direction() -> None:
    assert (MANY.prefix_ids("en", "de"), MANY.start_ids("de")) == ((5,), (6,))
    assert (MARIAN.prefix_ids("en", "de"), MARIAN.start_ids("de")) == ((3,), ())
    assert (ONE.prefix_ids("en", "de"), ONE.start_ids("de")) == ((), ())


@pytest.mark.parametrize(
    ("directions", "source", "target", "chosen"),
    [
        (MANY, "en-GB", "de-AT", ("en", "de")),
        (MANY, "eng", "zh-TW", ("en", "zh-Hant")),
        (MANY, "zh-Hans-SG", "en", ("zh-Hans", "en")),
        (MARIAN, "", "fr", ("en", "fr")),
        (ONE, "", "", ("en", "de")),
        (Directions(("en", "de"), ("en", "de"), IDS, "source", "target"), "", "en", ("de", "en")),
    ],
)
def test_other_codes_find_a_direction(
    directions: Directions, source: str, target: str, chosen: tuple[str, str]
) -> None:
    assert directions.may_fit(source, target)
    assert directions.choose(source, target) == chosen


@pytest.mark.parametrize(
    ("directions", "source", "target", "side", "message", "may_fit"),
    [
        (MANY, "en", "zh", "target", "'zh' could be any of zh-Hans, zh-Hant", True),
        (MANY, "", "de", "source", "must be given, one of: en, zh-Hans, zh-Hant", True),
        (MARIAN, "en", "", "target", "must be given, one of: de, fr", True),
        (MANY, "ja", "de", "source", "no language 'ja'", False),
        (MANY, "en-GB", "en-US", "target", "is the source language", False),
        (MANY, "en", "x" * 5000, "target", "no language 'x{64}'...", False),
    ],
)
def test_no_direction_or_several(
    directions: Directions, source: str, target: str, side: str, message: str, may_fit: bool
) -> None:
    with pytest.raises(DirectionError, match=message) as caught:
        directions.choose(source, target)
    assert caught.value.side == side
    assert directions.may_fit(source, target) is may_fit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sources": []}, "sources"),
        ({"targets": ["de", "DE"]}, "targets"),
        ({"targets": [1]}, "targets"),
        ({"sources": [f"q{i}" for i in range(1001)]}, "between 1 and 1000"),
        ({"token_ids": {"en": 9}}, "token_ids"),
        ({"token_ids": {"en": True}}, "token_ids"),
        ({"token_ids": {"en": 1}}, "no 'de'"),
        ({"source_prefix": "before"}, "source_prefix"),
        ({"target_prefix": None}, "target_prefix"),
    ],
)
def test_an_entry_that_makes_no_sense(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Directions.from_dict({**MANY.to_dict(), **change}, 9)

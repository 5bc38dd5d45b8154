"""The directions that a version of a model lacks compared with another one."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from model.bundle.directions import Directions
from service.models.served_model import ServedModel

CODES = st.lists(st.sampled_from(["en", "de", "fr", "EN-us"]), min_size=1, unique=True)
LOOKS: list[tuple[str, str]] = []


class CountedDirections(Directions):
    """Records each look at whether a direction fits."""

    def fits(self, source: str, target: str) -> bool:
        LOOKS.append((source, target))
        return super().fits(source, target)


def version(directions: Directions) -> ServedModel:
    nothing = cast(Any, None)
    return ServedModel("m", "1", directions, "int8", "cpu", nothing, nothing)


@given(CODES, CODES, CODES, CODES)
def test_what_is_lost(
    sources: list[str], targets: list[str], old_sources: list[str], old_targets: list[str]
) -> None:
    new = version(Directions(tuple(sources), tuple(targets)))
    old = version(Directions(tuple(old_sources), tuple(old_targets)))
    lost = [f"{one} to {other}" for one, other in old.directions if not new.fits(one, other)]
    assert new.lacks(old) == lost


def test_a_million_directions_are_not_compared_one_by_one() -> None:
    codes = tuple(f"q{one}" for one in range(1000))
    all_of_them = CountedDirections(codes, codes)
    fewer = CountedDirections(codes[:-1], codes[:-1])
    for new, count in ((all_of_them, 0), (fewer, 20)):
        LOOKS.clear()
        assert len(version(new).lacks(version(all_of_them))) == count
        assert len(LOOKS) < 5000

"""The contrastive half of the test of pronouns: is the right one the likeliest?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from bench.context.pronouns import GENDERS, PronounItem
from dragoman import AsyncClient

_MAX_ITEMS = 100  # of a call, three pairs each


class Contrast(NamedTuple):
    """The items of one gender, and of those the ones whose right pronoun is the likeliest."""

    num_right: int
    num_items: int

    @property
    def share(self) -> float:
        """Right ones of all."""
        return self.num_right / max(1, self.num_items)


async def contrast(
    client: AsyncClient, items: Sequence[PronounItem], count: int, source: str, target: str
) -> dict[str, Contrast]:
    """Score each item's candidates after the references of up to `count` sentences before.

    Args:
        client: of a server whose model can score.
        items: the test.
        count: sentences of context.
        source: language code of the sentences.
        target: language code of their translations.

    Returns:
        By gender.
    """
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for start in range(0, len(items), _MAX_ITEMS):
        some = items[start : start + _MAX_ITEMS]
        pairs = [pair for item in some for pair in _pairs(item, count)]
        scores = iter((await client.score(pairs, source=source, target=target)).scores)
        for item in some:
            three = {gender: next(scores) for gender in GENDERS}
            if any(score.error for score in three.values()):  # too long with its context
                continue
            likeliest = max(GENDERS, key=lambda gender: three[gender].log_probability)
            total[item.gender] += 1
            right[item.gender] += likeliest == item.gender
    return {gender: Contrast(right[gender], total[gender]) for gender in GENDERS}


def _pairs(item: PronounItem, count: int) -> list[tuple[str, str]]:
    first = max(0, len(item.sources) - 1 - count)
    source = " ".join(item.sources[first:])
    before = item.references[first:]
    return [(source, " ".join([*before, item.candidates[gender]])) for gender in GENDERS]

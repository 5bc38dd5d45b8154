"""Finds free carriers for sentences, and carriers that a model has invented."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from model.bundle.carriers import DEFAULT_CARRIERS, Carrier
from model.bundle.spans import Span
from service.things.patterns import PRIVATE
from service.things.things import Thing, is_fragile

_NUMBERED = re.compile(r"\{\d{1,3}\}")


def numbered(carrier: Carrier, count: int, *texts: str) -> list[str] | None:
    """The first carriers of a kind that are in none of the texts; None if there are too few."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        number += 1
        token = carrier.written(number)
        if token is None:
            return None
        if not any(token in text for text in texts):
            found.append(token)
    return found


def needs_carrier(thing: Thing, carriers: Sequence[Carrier]) -> bool:
    """Whether the model would damage a thing, so that it reads a carrier instead."""
    if is_fragile(thing):
        return True
    # A placeholder of markup, which not every model copies best.
    is_numbered = _NUMBERED.fullmatch(thing.text) is not None
    return is_numbered and bool(carriers) and carriers[0].form != DEFAULT_CARRIERS[0].form


def invented(text: str, carriers: Sequence[Carrier], *texts: str) -> list[Span]:
    """The places of carriers in a translation that are in none of the texts.

    Args:
        text: the translation.
        carriers: the kinds of carriers, beside private characters.
        texts: the sentence, and other strings that the translation may have.
    """
    return [
        Span(*match.span())
        for match in _pattern(tuple(carriers)).finditer(text)
        if not any(match.group() in other for other in texts)
    ]


def invented_privates(text: str, source: str) -> list[Span]:
    """The places of private characters that only the translation has: sentinels, most likely."""
    return [] if text.isascii() else invented(text, (), source)


@functools.lru_cache(64)
def _pattern(carriers: tuple[Carrier, ...]) -> re.Pattern[str]:
    parts = [f"[{PRIVATE}]"]
    for carrier in carriers:
        if carrier.count is None:
            before, after = map(re.escape, carrier.form.split("%d"))
            parts.append(rf"(?<![\w%]){before}\d{{1,2}}{after}(?!\w)")
    return re.compile("|".join(parts))

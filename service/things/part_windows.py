"""Divides texts into parts, some at a time, without holding up the event loop."""

from __future__ import annotations

import functools
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence

from service.common.fairness import in_thread, on_loop
from service.common.portions import portions
from service.things.joined_results import TranslatedPart
from service.things.scanned import TermRules
from service.things.text_parts import parts_of
from service.translation.options import TranslateOptions
from service.translation.preparation import FEW_TEXTS, are_few

# Parts of texts that are in translation together, twice: as many sentences as a model has room for.
_WINDOW = 256
# Texts with this many characters are divided within some milliseconds, on the event loop.
_SMALL_CHARACTERS = 500


async def windows_of(
    texts: Sequence[str], rules: TermRules, options: TranslateOptions
) -> AsyncIterator[list[TranslatedPart]]:
    """Yield windows of the parts of all texts, in order."""
    window: list[TranslatedPart] = []
    async for parts in _divided(texts, rules, options):
        window += parts
        if len(window) >= _WINDOW:
            yield window
            window = []
    if window:
        yield window


async def _divided(
    texts: Sequence[str], rules: TermRules, options: TranslateOptions
) -> AsyncIterator[list[TranslatedPart]]:
    """Some of the next parts, again and again."""

    def divide(index: int, text: str) -> Iterator[TranslatedPart]:
        for part in parts_of(text, rules, split_sentences=options.split_sentences):
            yield TranslatedPart(part, index)

    is_short = are_few(texts)
    index = 0
    for portion in portions(texts, _SMALL_CHARACTERS, count=FEW_TEXTS):
        divided = itertools.chain.from_iterable(map(divide, itertools.count(index), portion))
        index += len(portion)
        if is_short:
            yield list(divided)
        elif sum(map(len, portion)) <= _SMALL_CHARACTERS:
            yield await on_loop(functools.partial(list, divided))
        else:
            take = functools.partial(_some, divided)
            while parts := await in_thread(take):
                yield parts


def _some(parts: Iterator[TranslatedPart]) -> list[TranslatedPart]:
    return list(itertools.islice(parts, _WINDOW))

"""Patterns of languages, compiled before a text needs them.

Compiling those of a language takes up to some ten milliseconds, in one piece each, which would
block the event loop.
"""

from __future__ import annotations

import functools

from model.bundle.languages import primary_subtag
from service.common.fairness import in_thread
from service.things import dates, number_reader, patterns
from service.translation.verbatim import scripts_of

_prepared: set[tuple[tuple[str, ...], str]] = set()
"""Scripts, and languages in which dates are read: of each there are some ten."""


async def prepare(*languages: str) -> None:
    """Compile the patterns of some languages in a thread, once."""
    for language in languages:
        key = scripts_of(language), primary_subtag(language) if dates.are_read_in(language) else ""
        if key not in _prepared:
            await in_thread(functools.partial(compile_patterns, language))
            _prepared.add(key)


def compile_patterns(language: str) -> None:
    """Compile the patterns of a language, unless they have been.

    Args:
        language: BCP-47 code of any language.
    """
    patterns.foreign_words(language)
    number_reader.small_numbers_in("", language)
    if dates.are_read_in(language):
        dates.compile_patterns(language)

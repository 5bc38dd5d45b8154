"""Repetition in a text: sounds and choruses, and the loops of a model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from model.bundle.spans import Span
from service.things.acronyms import is_common
from service.things.edits import Edit

_TOKEN = re.compile(r"\w++")
_VOWELS = re.compile(r"(?:[aeiou]|\By)++")
_TWICE = re.compile(r"\b(\w++)\W++\1\b", re.IGNORECASE)
# A unit of some characters, again and again.
_RUN = re.compile(
    r"(?=\S)(?:(\w)\1{3,}|(.)\2{5,}|(.{2})\3{3,}"
    + "".join(rf"|(.{{{n}}})\{n + 1}{{{3 if n < 6 else 2},}}" for n in range(3, 13))
    + ")",
    re.DOTALL,
)
_SOURCE_RUN = re.compile(r"(?i)([^\W\d_])\1\1|([^\W\d_]{2,4})\2\2")
_MAX_PERIOD = 6
_SHORTEST_RUN = 4
_LINE = 8  # of one sign


def has_runs(text: str) -> bool:
    """Whether a text has a repetition that models may continue: "la la la", "hahaha", "aaah"."""
    words = [word.strip(",.!?…♪()\"'") for word in text.lower().split()]
    fourth = third = before = last = ""
    for said in words if len(set(words)) < len(words) - 1 else ():
        is_third = said == before and (said == last or (said == fourth and third == last))
        if is_third and said.isalpha():
            return True
        fourth, third, before, last = third, before, last, said
    return any(_SOURCE_RUN.search(word) for word in words if _is_dull(word, 3))


def _is_dull(word: str, least: int) -> bool:
    """Whether a word has so few different characters that it may repeat itself."""
    length = len(word)
    return length > least and len(set(word)) <= min(length - 2, length // 2 + 1)


class RepeatedRun(NamedTuple):
    """A part of a text that repeats itself.

    Attributes:
        span: the place of the run.
        unit: characters of the repeated string.
    """

    span: Span
    unit: int

    @property
    def length(self) -> int:
        """The length of the run in characters."""
        return self.span.end - self.span.start

    @property
    def num_units(self) -> int:
        """The number of repeated strings in the run, rounded up."""
        return -(-self.length // self.unit)


def surplus_run(source: str, text: str) -> Span | None:
    """The part of a run in a translation that exceeds the longest run of its source."""
    found = _longest(text)
    if found is None:
        return None
    own = _longest(source)
    most = own.num_units + max(1, own.num_units // 2) if own else 2
    if found.num_units <= most or (own and found.length <= own.length):
        return None
    kept = (own.num_units if own else 1) * found.unit
    return Span(found.span.start + kept, found.span.end) if kept < found.length else None


def lost_run(source: str, text: str) -> Span | None:
    """The run of sounds that makes up most of a source, if a translation has less than half of it.

    Several words are not lost if the translation repeats a word of its own: "sehr sehr sehr gut"
    can be "very very good".
    """
    own = _longest(source)
    if own is None or own.length * 5 < len(source.strip()) * 3 or own_run(source) is None:
        return None
    twice = _TWICE.search(text) if len(_TOKEN.findall(source[slice(*own.span)])) > 1 else None
    if twice and twice[1].lower() not in _TOKEN.findall(source.lower()):
        return None
    found = _longest(text)
    is_alike = found is not None and (found.unit > 1 or own.unit == 1)
    if found is not None and _num_words(source, own) > _num_words(text, found):
        is_alike = False  # "tick tick tick" is not "tick tock tick tock"
    count = found.num_units if found is not None and is_alike else 0
    return own.span if count * 2 < own.num_units else None


def _num_words(text: str, run: RepeatedRun) -> int:
    """Number of different words that occur more than once in a run, at least 1.

    Words that the run covers in part count, too.
    """
    start, end = run.span
    words = (w[0].lower() for w in _TOKEN.finditer(text) if w.start() < end and start < w.end())
    return max(1, sum(count > 1 for count in Counter(words).values()))


def lacks_rest(source: str, text: str) -> bool:
    """Whether a source has words beside its run, and the translation only a run."""
    own = _longest(source)
    found = _longest(text) if own is not None else None
    if own is None or found is None:
        return False
    return len(_beside(source, own)) > 1 and not _beside(text, found)


def _beside(text: str, run: RepeatedRun) -> list[str]:
    """The words beside a run, without those that it repeats."""
    repeated = set(_TOKEN.findall(text[slice(*run.span)].lower()))
    return [word for word in _TOKEN.findall(text.lower()) if word not in repeated]


def own_run(source: str) -> Span | None:
    """The longest run of a source, if it is one of sounds: other words are not to be copied."""
    run = _longest(source)
    if run is None or any(map(_is_no_sound, _TOKEN.findall(source[slice(*run.span)]))):
        return None
    return run.span


def _is_no_sound(word: str) -> bool:
    """Whether a word is common, or has different vowels in different syllables, unlike "haha"."""
    return is_common(word) or len({vowels[0] for vowels in _VOWELS.findall(word.lower())}) > 1


def without_run(source: str, text: str) -> Edit | None:
    """The removal of surplus repetition; None if there is none, or the source has no run."""
    span = surplus_run(source, text)
    if span is None or _longest(source) is None:
        return None
    start = span.start
    while start < span.end and text[start - 1 : start].isalnum() and text[start].isalnum():
        start += 1
    if not text[span.end :].strip():
        start = len(text[:start].rstrip())
    return Edit(Span(start, span.end), "")


# Each check of an attempt asks for the runs of the same source and translation.
@lru_cache(maxsize=4)
def _longest(text: str) -> RepeatedRun | None:
    """The longest run of a text, by characters or by words."""
    runs = [*_runs_in_words(text), *_runs_of_words(text)]
    return max(runs, key=lambda run: run.length, default=None)


def _runs_in_words(text: str) -> Iterator[RepeatedRun]:
    start = 0
    for word in text.split():
        if len(word) < _SHORTEST_RUN or not _is_dull(word, _SHORTEST_RUN - 1):
            continue
        start = text.index(word, start)
        for match in _RUN.finditer(word):
            unit = next(group for group in match.groups() if group)
            if any(map(str.isalnum, unit)) or (len(unit) == 1 and len(match.group()) > _LINE):
                yield RepeatedRun(Span(start + match.start(), start + match.end()), len(unit))
        start += len(word)


def _runs_of_words(text: str) -> Iterator[RepeatedRun]:
    said = _TOKEN.findall(text.lower())
    if len(set(said)) * 3 > 2 * len(said) + 3:
        return  # the usual case: most words are there once
    words = list(_TOKEN.finditer(text))
    said = [match.group().lower() for match in words]
    for period in range(1, min(_MAX_PERIOD, len(words) // 3) + 1):
        start = 0
        for index in range(period, len(said) + 1):
            if index < len(said) and said[index] == said[index - period]:
                continue
            if index - start >= 3 * period:
                span = Span(words[start].start(), words[index - 1].end())
                yield RepeatedRun(span, words[start + period - 1].end() - span.start + 1)
            start = index - period + 1

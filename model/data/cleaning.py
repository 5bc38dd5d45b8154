"""Filters for sentence pairs: faults, and near twins of the validation text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

Pair = tuple[str, str]

MAX_CHARACTERS = 1000
MAX_LENGTH_RATIO = 2.2
TWIN_SIMILARITY = 0.5
SHINGLE = 4  # characters

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028\u2029\ufeff\ufffd]")
_SPACE = re.compile(r"\s+")
_NOT_LETTER = re.compile(r"[\W\d_]+")
_WORD = re.compile(r"[^\W\d_]+")
# Letters outside the Latin blocks: Greek to Phonetic Extensions, Glagolitic to Hangul and on.
_NOT_LATIN = re.compile(
    r"[\u0370-\u1dbf\u2c80-\ua7ff\ua800-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]"
)

# Frequent words that the other languages of the list do not have.
_FREQUENT = {
    "en": "the of and to is you that it with this are be not your for from by have can",
    "de": "der das und ist nicht ein eine zu den von mit sie für auf dem im werden wird sich oder",
    "fr": "le la les et est un une que pour dans qui pas sur vous ne avec ce il plus du",
}
FREQUENT_WORDS = {language: frozenset(words.split()) for language, words in _FREQUENT.items()}


def tidy(text: str) -> str:
    """`text` in Unicode NFC, without control characters and with single spaces."""
    return _SPACE.sub(" ", _CONTROL.sub("", unicodedata.normalize("NFC", text))).strip()


def fault(source: str, target: str, languages: tuple[str, str]) -> str | None:
    """The reason to leave a pair out; None for a good one.

    Args:
        source: the source side, tidied (`tidy`).
        target: the target side, tidied (`tidy`).
        languages: ISO 639-1 codes of the two sides.
    """
    if not source or not target:
        return "empty"
    if max(len(source), len(target)) > MAX_CHARACTERS:
        return "too long"
    # Ten characters on each side: short texts differ in length without being wrong.
    ratio = (len(source) + 10) / (len(target) + 10)
    if not 1 / MAX_LENGTH_RATIO <= ratio <= MAX_LENGTH_RATIO:
        return "length ratio"
    for side in (source, target):
        if len(_NOT_LETTER.sub("", side)) < 0.4 * len(side):
            return "few letters"
        if len(_NOT_LATIN.findall(side)) > 0.2 * len(side):
            return "script"
    if source.casefold() == target.casefold() and source.count(" ") >= 3:
        return "not translated"
    if _wrong_language(source, *languages) or _wrong_language(target, *reversed(languages)):
        return "language"
    return None


def _wrong_language(text: str, own: str, other: str) -> bool:
    """Whether `text` has more of the other language's frequent words than of its own."""
    words = _WORD.findall(text.casefold())
    mine, theirs = (sum(w in FREQUENT_WORDS.get(x, ()) for w in words) for x in (own, other))
    return theirs >= 2 and theirs > mine


def fold(text: str) -> str:
    """A key that does not change with case, punctuation and numbers."""
    words = re.findall(r"\w+", re.sub(r"\d+", "0", text.casefold()))
    return " ".join(words) or text


def identity(pair: Pair) -> Pair:
    """A key that pairs share if they differ in case and punctuation only."""
    folded = [" ".join(re.findall(r"\w+", side.casefold())) or side for side in pair]
    return folded[0], folded[1]


def names_in(sentences: Iterable[str]) -> frozenset[str]:
    """Words, case-folded, that are mostly capitalised inside English sentences: names, that is."""
    capitalised: Counter[str] = Counter()
    lower: Counter[str] = Counter()
    for sentence in sentences:
        for index, word in enumerate(_WORD.findall(sentence)):
            if word[0].islower():
                lower[word] += 1
            elif index and len(word) > 1:
                capitalised[word.casefold()] += 1
    return frozenset(w for w, count in capitalised.items() if count >= 3 and count > lower[w])


def masked(text: str, names: frozenset[str]) -> str:
    """`fold`, with one sign for every name."""
    return " ".join("@" if word in names else word for word in fold(text).split())


def near_twins(
    train: Sequence[Pair], valid: Sequence[Pair], *, similarity: float = TWIN_SIMILARITY
) -> Mapping[int, set[int]]:
    """The validation pairs to which each training pair is a near twin, by training index.

    Numbers, case and punctuation do not count, and on the source side names do not either. Twins
    are pairs with the same source, with the same target (other sources of one translation), or
    with sources whose sets of character 4-grams overlap by at least `similarity` (Jaccard, as in
    Broder, 1997, "On the resemblance and containment of documents"), computed exactly.

    Args:
        train: pairs, the source side in English.
        valid: pairs of the same kind of text.
        similarity: least similarity of two near twins, in (0, 1].
    """
    names = names_in(source for source, _ in [*train, *valid])
    by_target: defaultdict[str, list[int]] = defaultdict(list)
    by_shingle: defaultdict[str, list[int]] = defaultdict(list)
    sizes = np.zeros(len(valid), np.int64)
    for index, (source, target) in enumerate(valid):
        by_target[fold(target)].append(index)
        shingles = _shingles(masked(source, names))
        sizes[index] = len(shingles)
        for shingle in shingles:
            by_shingle[shingle].append(index)
    postings = {shingle: np.array(found) for shingle, found in by_shingle.items()}
    twins: dict[int, set[int]] = {}
    for index, (source, target) in enumerate(train):
        found = set(by_target.get(fold(target), ()))
        shingles = _shingles(masked(source, names))
        hits = [postings[shingle] for shingle in shingles if shingle in postings]
        if hits:
            common = np.bincount(np.concatenate(hits), minlength=len(valid))
            union = sizes + len(shingles) - common
            found.update(np.flatnonzero(common >= similarity * union).tolist())
        if found:
            twins[index] = found
    return twins


def _shingles(text: str) -> set[str]:
    padded = f" {text} "
    return {padded[i : i + SHINGLE] for i in range(max(1, len(padded) - SHINGLE + 1))}

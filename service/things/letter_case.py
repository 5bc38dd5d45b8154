"""CAPITALS, Title Case and single words: models translate them badly, as they have seen few.

- A sentence of three or more words in CAPITALS is translated in sentence case, and the translation
  is put in capitals.
- Title Case of three words or more, CAPITALS of one or two words, and a single capitalised word
  that the model copies are translated twice: unchanged, and in another case. The translation with
  the higher mean log-probability of its tokens is kept, so that names and abbreviations stay.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

from model.bundle.languages import primary_subtag
from model.bundle.spans import Span

_MIN_WORDS = 3
# Longer texts are none of these.
_MAX_CHARACTERS = 1000
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*+")
# Words that headings don't capitalise.
_SMALL = frozenset(
    [
        "a",
        "an",
        "and",
        "as",
        "at",
        "but",
        "by",
        "for",
        "from",
        "if",
        "in",
        "into",
        "nor",
        "of",
        "off",
        "on",
        "or",
        "over",
        "per",
        "so",
        "than",
        "the",
        "to",
        "up",
        "via",
        "vs",
        "with",
        "yet",
    ]
)
# Languages whose sentences have most words in lower case, and titles don't. In German and others
# that are not here, capitals say what a word is.
_TITLED = frozenset({"en"})

_LOWER = b"abcdefghijklmnopqrstuvwxyz,.;:'"
_SHAPES = bytes(0x41 if 0x41 <= byte <= 0x5A else byte for byte in range(256))


class LetterCase(enum.Enum):
    """The letter case of a sentence."""

    USUAL = "usual"
    CAPITALS = "capitals"
    FEW_CAPITALS = "one or two words in capitals"
    TITLE = "title"
    WORD = "a capitalised word alone"


def may_be_unusual(text: str) -> bool:
    """Whether a sentence of the text may be in an unusual case: one fast scan.

    It looks for two capitals side by side, for capitalised words one after another, with at most
    one word between, and for lines of one word.
    """
    if " " not in text or "\n" in text:
        return True
    shape = text.encode("utf-8", "surrogatepass").translate(_SHAPES, _LOWER)
    return any(pattern in shape for pattern in (b"AA", b"A A", b"A  A"))


def letter_case(text: str, language: str, things: Sequence[Span] = ()) -> LetterCase:
    """The case of a sentence.

    Args:
        text: the sentence.
        language: BCP-47 code of the text.
        things: places of parts that don't count.
    """
    if len(text) > _MAX_CHARACTERS:
        return LetterCase.USUAL
    words = _words(_blanked(text, things))
    if not words:
        return LetterCase.USUAL
    if all(map(str.isupper, words)) and max(map(len, words)) > 1:
        return LetterCase.CAPITALS if len(words) >= _MIN_WORDS else LetterCase.FEW_CAPITALS
    is_titled = primary_subtag(language) in _TITLED
    if not is_titled:
        return LetterCase.USUAL
    if len(words) == 1:
        return LetterCase.WORD if words[0].istitle() and len(words[0]) > 1 else LetterCase.USUAL
    return LetterCase.TITLE if _is_title(words) else LetterCase.USUAL


def recased(text: str, case: LetterCase, things: Sequence[Span] = ()) -> str:
    """The sentence in another letter case. The length is the same.

    A sentence of one or two words gets lower case, others get sentence case. "I" stays a capital,
    and words of a title that are all in capitals stay so.

    Args:
        text: the sentence.
        case: the letter case of the sentence.
        things: places of parts that stay as they are.
    """
    is_first = case not in (LetterCase.WORD, LetterCase.FEW_CAPITALS)
    pieces: list[str] = []
    end = 0
    for match in _WORD.finditer(_blanked(text, things)):
        word = match.group()
        keeps = word in ("I", "I'm", "I'll", "I've", "I'd") or (
            case is LetterCase.TITLE and not word.istitle() and len(word) > 1
        )
        if not keeps:
            word = _lower(word)
            word = word[:1].upper() + word[1:] if is_first and len(word[:1].upper()) == 1 else word
            word = re.sub(r"^i(?=['’])", "I", word)
        is_first = False
        pieces += (text[end : match.start()], word)
        end = match.end()
    return "".join([*pieces, text[end:]])


def restored(text: str, case: LetterCase, target: str, things: Sequence[Span] = ()) -> str:
    """A translation in the letter case of its source. The length is the same.

    Args:
        text: the translation of a recased sentence.
        case: the letter case of the sentence before it was recased.
        target: BCP-47 code of the translation. Languages without Title Case get sentence case.
        things: places of parts that stay as they are.
    """
    if case in (LetterCase.CAPITALS, LetterCase.FEW_CAPITALS):
        changed = "".join(map(_upper, text))
    elif case is LetterCase.TITLE and primary_subtag(target) in _TITLED:
        changed = _WORD.sub(lambda match: _titled(match.group()), text)
        changed = _first_upper(changed)
    else:
        changed = _first_upper(text)
    for span in things:
        changed = changed[: span.start] + text[span.start : span.end] + changed[span.end :]
    return changed


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _blanked(text: str, things: Sequence[Span]) -> str:
    for span in things:
        text = text[: span.start] + " " * (span.end - span.start) + text[span.end :]
    return text


def _is_title(words: Sequence[str]) -> bool:
    """Whether all but the small words have a capital: at least three words, one of them longer."""
    capitalised = [word for word in words if word[0].isupper()]
    others = [word for word in words if not word[0].isupper()]
    return (
        len(capitalised) >= _MIN_WORDS
        and all(word in _SMALL for word in others)
        and any(len(word) > 3 and word.istitle() for word in capitalised[1:])
    )


def _titled(word: str) -> str:
    return word if word in _SMALL else _first_upper(word)


def _first_upper(text: str) -> str:
    """The text with its first letter as a capital."""
    for index, character in enumerate(text):
        if character.isalpha():
            return text[:index] + _upper(character) + text[index + 1 :]
    return text


def _upper(character: str) -> str:
    """The capital of a letter, if it is one character; ß stays."""
    upper = character.upper()
    return upper if len(upper) == 1 else character


def _lower(word: str) -> str:
    lower = word.lower()
    return lower if len(lower) == len(word) else word

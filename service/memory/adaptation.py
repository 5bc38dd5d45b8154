"""Gives a translation of the memory the things and the letter case of another text.

Where that might be wrong, it is not done, and the pair counts as a similar one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from model.bundle.spans import Span
from service.memory.pairs import TextPair
from service.memory.wording import REPLACED, Wording, normalised
from service.things.edits import Edit, EditedText
from service.things.letter_case import LetterCase, letter_case, restored
from service.things.occurrences import Occurrences
from service.things.thing_forms import forms_of
from service.things.things import ALL_KINDS, Thing, find_things

_RUN = re.compile(r"\d+")
_NUMBER = re.compile(r"\d+(?:[.,:'’\u00a0\u202f]\d+)*")
_FRACTION = re.compile(r"\d+[.,]\d+")
_CAPITALS = (LetterCase.CAPITALS, LetterCase.FEW_CAPITALS)


def adapted(pair: TextPair, wording: Wording, source: str, target: str) -> str | None:
    """The translation of a text by a pair of the memory; None if it can't be made from that.

    Args:
        pair: a pair, whose source has the shape of the text.
        wording: the text.
        source: BCP-47 code of the text.
        target: BCP-47 code of the translation.
    """
    if normalised(pair.source) == wording.text:
        return pair.target
    known = Wording.of(pair.source, source)
    if known.shape != wording.shape:
        return None
    translated, spans = pair.target, list[Span]()
    if [thing.text for thing in known.things] != [thing.text for thing in wording.things]:
        replaced = _replaced(known.things, wording.things, pair.target, source, target)
        if replaced is None:
            return None
        translated, spans = replaced.text, replaced.spans
    return _cased(translated, spans, known, wording, source, target)


def _replaced(
    known: Sequence[Thing], given: Sequence[Thing], translation: str, source: str, target: str
) -> EditedText | None:
    """A translation with other things; None if it has not each of its source's exactly once."""
    if len({thing.text for thing in known}) < len(known):
        return None
    wanted = {thing.text: forms_of(thing, source, target).right for thing in known}
    forms = [form for right in wanted.values() for form in right]
    if max(Counter(forms).values()) > 1:  # "5" and "5 km": which is which?
        return None
    places = Occurrences(translation, wanted).spans
    if any(len(spans) != 1 for spans in places.values()):
        return None
    old = [places[thing.text][0] for thing in known]
    written = [translation[slice(*span)] for span in old]
    if any(_is_word(text, thing) for text, thing in zip(written, known, strict=True)):
        return None  # another number may need another form of the words around it
    new = [
        _form_like(text, thing, source, target) for text, thing in zip(written, given, strict=True)
    ]
    if _has_others(translation, old, target):
        return None
    edits = [Edit(span, text) for span, text in zip(old, new, strict=True) if text is not None]
    return EditedText(translation, edits) if len(edits) == len(old) else None


def _form_like(written: str, thing: Thing, source: str, target: str) -> str | None:
    """The form of a thing that is written like a string; None without one, or with several."""
    forms = forms_of(thing, source, target).right
    if len(forms) == 1:
        return forms[0]
    digits = [form for form in forms if _has_digits(form)] or list(forms)
    alike = [form for form in digits if _RUN.sub("0", form) == _RUN.sub("0", written)]
    if alike:
        return alike[0]
    alike = [form for form in digits if _NUMBER.sub("0", form) == _NUMBER.sub("0", written)]
    if not alike:
        return None
    # "7.50" is "7,50" in German, but a version is not: only an example could tell.
    fractions = set(_FRACTION.findall(alike[0])) & set(_FRACTION.findall(thing.text))
    return None if fractions and len({*map(_as_point, alike)}) < len(alike) else alike[0]


def _as_point(form: str) -> str:
    return form.replace(",", ".")


def _is_word(written: str, thing: Thing) -> bool:
    """Whether a thing with digits is written without them."""
    return _has_digits(thing.text) and not _has_digits(written)


def _has_digits(text: str) -> bool:
    return any(map(str.isdigit, text))


def _has_others(translation: str, places: Sequence[Span], target: str) -> bool:
    """Whether a translation has things or digits beside those that are replaced."""
    rest = EditedText(translation, [Edit(span, " ") for span in places]).text
    if _has_digits(rest):
        return True
    return any(thing.form in REPLACED for thing in find_things(rest, ALL_KINDS, target))


def _cased(
    translated: str,
    things: Sequence[Span],
    known: Wording,
    wording: Wording,
    source: str,
    target: str,
) -> str | None:
    """A translation in the letter case of a text; None if that is not known.

    CAPITALS and an initial capital can be carried over. The other way round, a translation may have
    capitals of its own.
    """
    one, other = _letters(known), _letters(wording)
    if one == other:
        return translated
    case = letter_case(wording.text, source, [thing.span for thing in wording.things])
    if case in _CAPITALS:
        return restored(translated, case, target, things)
    if one[:1].upper() + one[1:] == other and wording.text[:1].isupper():
        return translated[:1].upper() + translated[1:]
    return None


def _letters(wording: Wording) -> str:
    """The text without its things, which have a letter case of their own."""
    spans = [thing.span for thing in wording.things]
    return EditedText(wording.text, [Edit(span, "\0") for span in spans]).text

"""The needs of a sentence: of its things, and of its terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from model.bundle.spans import Span
from service.glossaries.glossary import TermMatch
from service.things.thing_forms import forms_of
from service.things.things import Form, Thing
from service.things.times import writes_24_hours
from service.things.wanted import Need, Needs


def thing_needs(
    text: str,
    things: Sequence[Thing],
    source: str,
    target: str,
    terms: str = "",
    built: Mapping[Span, str] = MappingProxyType({}),
) -> Needs:
    """The needs of things.

    Args:
        text: the sentence.
        things: the things of the sentence.
        source: BCP-47 code of the sentence.
        target: BCP-47 code of the translation.
        terms: the translations of the sentence's terms. A thing that is part of one may be in the
            translation more often than in the sentence.
        built: strings to put into the translation for some things, by the thing's place.
    """
    places: dict[str, list[Thing]] = {}
    for thing in things:
        places.setdefault(thing.text, []).append(thing)
    num_times = sum(thing.form is Form.TIME for thing in things)
    needs: dict[str, Need] = {}
    amounts: dict[str, str] = {}  # the name of the need by each form of an amount
    for name, same in places.items():
        if _is_left_to_the_model(same[0], target):
            continue
        spans = tuple(thing.span for thing in same)
        if same[0].span in built:
            put = built[same[0].span]
            is_one = list(built.values()).count(put) == len(spans)
            needs[name] = Need(spans, (put,), may_repeat=not is_one)
            continue
        forms = forms_of(same[0], source, target)
        if same[0].form is Form.AMOUNT:
            first = next((amounts[form] for form in forms.right if form in amounts), name)
            if first != name:
                needs[first] = needs[first].joined(first, name, spans)
                continue
            amounts.update(dict.fromkeys(forms.right, name))
        is_other_time = same[0].form is Form.TIME and num_times > 1
        needs[name] = Need(
            spans,
            forms.right,
            () if is_other_time else forms.wrong,
            may_repeat=not forms.is_exact or name in terms,
            repeats_words=not forms.is_exact and name not in terms,
            given=forms.given,
            is_capitals=same[0].form is Form.ACRONYM,
            better=forms.better,
            number=forms.number,
            digits=forms.digits,
        )
    return Needs(needs, text, target)


def _is_left_to_the_model(thing: Thing, target: str) -> bool:
    """Whether a thing in words has no forms in the target language."""
    if any(map(str.isdigit, thing.text)):
        return False
    is_german = target.split("-")[0].lower() == "de"
    return (thing.form is Form.TIME and not writes_24_hours(target)) or (
        thing.form in (Form.AGE, Form.DECADE) and not is_german
    )


def term_needs(matches: Sequence[TermMatch]) -> Needs:
    """The needs of terms."""
    counts = Counter(match.entry.source for match in matches)
    needs = {}
    for source in counts:
        same = [match for match in matches if match.entry.source == source]
        needs[source] = Need(
            tuple(match.span for match in same),
            same[0].accepted,
            may_repeat=True,
            puts=tuple(match.form for match in same),
        )
    return Needs(needs)

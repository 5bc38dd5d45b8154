"""The needs of a sentence: of its things, and of its terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from model.bundle.languages import primary_subtag
from model.bundle.spans import Span
from service.glossaries.glossary import TermMatch
from service.things import date_scan, dates, number_reader
from service.things.number_reader import Number
from service.things.thing_forms import ThingForms, forms_of
from service.things.things import Form, Thing
from service.things.times import is_converted
from service.things.wanted import Need, Needs

# $5 and 5 $, 5% and 5 %, fifteen and 15, 5th and 5: counted together.
_AMOUNTS = frozenset([Form.AMOUNT, Form.UNIT])
_NUMBERS = frozenset([Form.NUMBER, Form.ORDINAL, Form.NUMBER_IN_WORDS])
_DATES = frozenset([Form.DATE, Form.DAY_NAME])  # Monday and Mondays, too


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
    has_others = any(thing.form in (Form.NUMBER_IN_WORDS, Form.ORDINAL) for thing in things)
    joins = _DATES | _AMOUNTS | (_NUMBERS if has_others else frozenset())
    alike: dict[str, str] = {}  # the name of the need by each form of a number
    for name, same in places.items():
        forms = forms_of(same[0], source, target)
        if _is_left_to_the_model(same[0], forms, target):
            continue
        spans = tuple(thing.span for thing in same)
        if same[0].span in built:
            put = built[same[0].span]
            is_one = list(built.values()).count(put) == len(spans)
            needs[name] = Need(spans, (put,), may_repeat=not is_one)
            continue
        is_word = same[0].form is Form.DAY_NAME or (
            isinstance(forms.said, Number) and forms.said.is_small
        )
        if is_word and date_scan.is_in_name(text, spans[0], source):
            forms = replace(forms, right=(*forms.right, name))
        if same[0].form in joins:
            first = next((alike[form] for form in forms.right if form in alike), name)
            if first != name:
                needs[first] = needs[first].joined(first, name, spans, forms)
                continue
            alike.update(dict.fromkeys(forms.right, name))
        is_other_time = same[0].form is Form.TIME and num_times > 1
        needs[name] = Need(
            spans,
            forms.right,
            () if is_other_time else forms.wrong,
            may_repeat=not forms.is_exact or name in terms,
            repeats_words=not forms.is_exact and name not in terms,
            given=forms.given,
            is_capitals=same[0].form is Form.ACRONYM,
            is_time=same[0].form is Form.TIME,
            better=forms.better,
            said=forms.said,
            other=forms.other,
        )
    return Needs(needs, text, source, target)


def _is_left_to_the_model(thing: Thing, forms: ThingForms, target: str) -> bool:
    """Whether a thing in words has no forms in the target language."""
    if any(map(str.isdigit, thing.text)):
        return False
    language = primary_subtag(target)
    if thing.form is Form.TIME:
        return not is_converted(thing.text, target)
    if thing.form in _DATES:
        return not dates.are_read_in(target)
    if isinstance(forms.said, Number):  # "le vingt mai", "XVIIIe siècle"
        if forms.said.is_small:
            return not number_reader.are_small_ones_read_in(target)
        return forms.said.is_ordinal and language not in ("de", "en")
    return thing.form in (Form.AGE, Form.DECADE) and language != "de"


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

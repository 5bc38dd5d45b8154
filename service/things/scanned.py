"""Sentences that need care, and the rules of a request for them."""

from __future__ import annotations

from dataclasses import dataclass

from model.bundle.carriers import DEFAULT_CARRIERS, Carrier
from service.glossaries.glossary import NO_GLOSSARY, Glossary, TermMatch
from service.things.checks import different_signs
from service.things.estimates import is_estimate
from service.things.letter_case import LetterCase, letter_case
from service.things.quotes import Quote, apostrophes_of, quotes_of
from service.things.runs import has_runs
from service.things.things import ALL_KINDS, Form, Thing, ThingKind, find_things
from service.things.wanted import overlap


@dataclass(frozen=True)
class TermRules:
    """The rules of a request for things, letter case and terms.

    Attributes:
        source, target: BCP-47 codes of the languages.
        kinds: kinds of things that are kept.
        letter_case: whether sentences in CAPITALS and Title Case are translated in another case.
        glossary: the glossary with the terms.
        term_methods: methods to put a term that the model did not use, in the order in which they
            are tried. "constrain" keeps the translation up to the words for the term, and lets the
            model continue after the term. "replace" puts the term over these words. "stand in" lets
            the model copy a token, which the term then replaces.
        carriers: strings that the model copies, best first.
    """

    source: str
    target: str
    kinds: frozenset[ThingKind] = ALL_KINDS
    letter_case: bool = True
    glossary: Glossary = NO_GLOSSARY
    term_methods: tuple[str, ...] = ("constrain", "replace", "stand in")
    carriers: tuple[Carrier, ...] = DEFAULT_CARRIERS


_WORDS = frozenset([Form.NUMBER_IN_WORDS, Form.DATE, Form.DAY_NAME])
_NAMES = frozenset([ThingKind.IDENTIFIER, ThingKind.FOREIGN])


@dataclass(frozen=True)
class ScannedSentence:
    """A sentence that needs care.

    Attributes:
        text: the sentence.
        things: things in the sentence, in order.
        terms: terms of the glossary in the sentence.
        case: letter case of the sentence.
        quotes: quotation marks of the sentence, in order.
    """

    text: str
    things: tuple[Thing, ...] = ()
    terms: tuple[TermMatch, ...] = ()
    case: LetterCase = LetterCase.USUAL
    quotes: tuple[Quote, ...] = ()

    @classmethod
    def of(cls, text: str, rules: TermRules) -> ScannedSentence | None:
        """The sentence with its things and terms; None if it needs no care."""
        sentence = cls.scanned(text, rules)
        has_any = sentence.things or sentence.terms or sentence.quotes or apostrophes_of(text)
        if has_any or sentence.case is not LetterCase.USUAL:
            return sentence
        has_sign = "…" in text or different_signs(text, "")
        needs_care = has_sign or has_runs(text) or is_estimate(text)
        return sentence if rules.kinds and needs_care else None

    @classmethod
    def scanned(cls, text: str, rules: TermRules) -> ScannedSentence:
        """The sentence with its things and terms, also if it has none."""
        things = tuple(find_things(text, rules.kinds, rules.source)) if rules.kinds else ()
        # A term of the glossary comes before a name or words that would be kept.
        taken = [t.span for t in things if t.kind not in _NAMES and t.form not in _WORDS]
        terms = tuple(rules.glossary.matches(text, taken)) if rules.glossary else ()
        things = tuple(t for t in things if not any(overlap(t.span, term.span) for term in terms))
        taken = [thing.span for thing in things]
        case = letter_case(text, rules.source, taken) if rules.letter_case else LetterCase.USUAL
        quotes = tuple(quotes_of(text, taken)) if rules.kinds else ()
        return cls(text, things, terms, case, quotes)

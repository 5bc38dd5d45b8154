"""Decides what to ask of the model for one sentence, and makes its translation of the answers.

Pure: `repair` is a generator of attempts, to which the caller sends their results. So the attempts
of many sentences can go to the model together.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from model.bundle.tokenizer import Span
from service.text.glossaries.glossary import NO_GLOSSARY, Glossary, TermMatch
from service.text.things.edits import Edit, EditedText
from service.text.things.letter_case import LetterCase, letter_case, recased, restored
from service.text.things.things import ALL_KINDS, Occurrences, Thing, ThingKind, find_things
from service.text.things.wanted import (
    Candidate,
    Needs,
    overlap,
    paired,
    term_needs,
    thing_needs,
    with_units,
)
from service.translation.blank_retries import has_word
from service.translation.links import Link
from service.translation.results import TextResult

MAX_ATTEMPTS = 4
"""Further translations of one sentence."""
# Most models copy these reliably: many placeholders of software look so.
_STANDINS = ("{%d}", "%%%d")
_ENDS = ".!?…。！？:;\"'”»)"


@dataclass(frozen=True)
class TermRules:
    """What a request wants of its sentences.

    Attributes:
        source, target: BCP-47 codes of the languages.
        kinds: of things that are kept.
        letter_case: whether sentences in CAPITALS and Title Case are translated in another case.
        glossary: its terms.
        term_methods: how to put a term that the model did not use, in order: "constrain" cuts the
            translation before the term's words and goes on after the term, "replace" puts the term
            over its words, "stand in" lets the model copy something in its place.
    """

    source: str
    target: str
    kinds: frozenset[ThingKind] = ALL_KINDS
    letter_case: bool = True
    glossary: Glossary = NO_GLOSSARY
    term_methods: tuple[str, ...] = ("constrain", "replace", "stand in")


@dataclass(frozen=True)
class ScannedSentence:
    """A sentence with something to take care of.

    Attributes:
        text: the sentence.
        things: in it.
        terms: of the glossary.
        case: its letter case.
    """

    text: str
    things: tuple[Thing, ...] = ()
    terms: tuple[TermMatch, ...] = ()
    case: LetterCase = LetterCase.USUAL

    @classmethod
    def of(cls, text: str, rules: TermRules) -> ScannedSentence | None:
        """The sentence; None if there is nothing to take care of."""
        things = tuple(find_things(text, rules.kinds)) if rules.kinds else ()
        taken = [thing.span for thing in things]
        terms = tuple(rules.glossary.matches(text, taken)) if rules.glossary else ()
        case = letter_case(text, rules.source, taken) if rules.letter_case else LetterCase.USUAL
        found = things or terms or case is not LetterCase.USUAL
        return cls(text, things, terms, case) if found else None


@dataclass(frozen=True)
class Attempt:
    """A translation to make.

    Attributes:
        text: to translate, in one piece.
        prefix: the beginning of the translation.
        links: whether links are needed.
        scores: whether the log-probability is needed.
    """

    text: str
    prefix: str = ""
    links: bool = False
    scores: bool = False


@dataclass(frozen=True)
class Draft:
    """A translation of a version of a sentence.

    Attributes:
        given: the sentence before and after what was changed before its translation.
        standins: for each string that stands in for a part of the sentence, that part's text.
        result: of the translation.
    """

    given: EditedText
    standins: dict[str, str]
    result: TextResult

    def candidate(self) -> Candidate:
        """The translation, with all parts in their places again."""
        tokens = {token: (token,) for token in self.standins}
        found = Occurrences(self.result.text, tokens).spans
        edits = (Edit(span, self.standins[t]) for t, spans in found.items() for span in spans)
        put = EditedText(self.result.text, edits)
        links = dict.fromkeys(
            Link(self.given.before(link.source), put.after(link.target))
            for link in self.result.links
        )
        return Candidate(put.text, list(links))


Repair = Generator[Attempt, TextResult | None, Candidate]


class SentenceRepair:
    """Makes the translation of one sentence.

    Args:
        sentence: the sentence.
        rules: of the request.
        links: whether the translation needs links.
        max_attempts: translations after the first.
    """

    def __init__(
        self,
        sentence: ScannedSentence,
        rules: TermRules,
        *,
        links: bool,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> None:
        self._sentence = sentence
        self._rules = rules
        self._links = links
        self._left = max_attempts
        self._forms = " ".join(form for match in sentence.terms for form in match.accepted)
        self._things = thing_needs(sentence.things, rules.source, rules.target, self._forms)
        self._terms = term_needs(sentence.terms)
        self._work = sentence.text

    def run(self) -> Repair:
        """Yield attempts, take their results (None: the model failed), and return the best.

        The first result is never None.
        """
        draft = yield from self._first()
        best = self._put_right(draft.candidate())
        if self._things.num_wrong(best):
            draft, best = yield from self._with_standins(draft, best)
        if self._terms and self._terms.num_wrong(best):
            best = yield from self._with_terms(draft, best)
        if self._terms:
            best = self._in_cases(best)
            if self._links:
                best = with_units(best, self._sentence.terms, self._terms)
        best = self._things.with_spaces(best, self._sentence.text)
        return self._worded(self._restored(best))

    # --- letter case -----------------------------------------------------------------------------

    def _first(self) -> Generator[Attempt, TextResult | None, Draft]:
        """The translation of the sentence, in the letter case that is better for it."""
        sentence, case = self._sentence, self._sentence.case
        links = self._links or bool(sentence.terms)
        spans = [thing.span for thing in sentence.things]
        changed = recased(sentence.text, case, spans) if case is not LetterCase.USUAL else ""
        compares = case not in (LetterCase.USUAL, LetterCase.CAPITALS)
        if case is LetterCase.CAPITALS:
            self._work = changed
        given = yield Attempt(self._work, links=links, scores=compares)
        assert given is not None, "the first translation was made"
        if not compares:
            return self._draft(given)
        if case is not LetterCase.WORD or given.text == sentence.text:
            other = yield Attempt(changed, links=links, scores=True)
            if other is not None and _rank(other) > _rank(given):
                self._work = changed
                return self._draft(other)
        self._sentence = replace(sentence, case=LetterCase.USUAL)
        return self._draft(given)

    def _worded(self, candidate: Candidate) -> Candidate:
        """The candidate; the sentence itself in place of one that lost all its words."""
        text = self._sentence.text
        if has_word(candidate.text) or not has_word(text):
            return candidate
        whole = Span(0, len(text))
        return Candidate(text, [Link(whole, whole)] if self._links else [])

    def _draft(self, result: TextResult) -> Draft:
        return Draft(EditedText(self._work, ()), {}, result)

    def _restored(self, candidate: Candidate) -> Candidate:
        case = self._sentence.case
        if case is LetterCase.USUAL:
            return candidate
        found = [span for spans in self._things.found(candidate).values() for span in spans]
        return replace(candidate, text=restored(candidate.text, case, self._rules.target, found))

    # --- things ----------------------------------------------------------------------------------

    def _put_right(self, candidate: Candidate) -> Candidate:
        """Put right what the model wrote in another letter case or with other separators."""
        return _edited(candidate, list(self._things.in_place(candidate)))

    def _with_standins(
        self, draft: Draft, best: Candidate
    ) -> Generator[Attempt, TextResult | None, tuple[Draft, Candidate]]:
        """Translate with something in place of what is missing; at last, put it there."""
        missing = dict(self._things.missing(best))
        everything = {
            thing.span: missing.get(thing.span, thing.text) for thing in self._sentence.things
        }
        tried = []
        for standin, places in ((0, missing), (0, everything), (1, missing)):
            if self._left <= 0 or not self._things.num_wrong(best):
                break
            given, tokens = _with_tokens(self._work, places, _STANDINS[standin], self._forms)
            if not tokens or given.text in tried:
                continue
            tried.append(given.text)
            self._left -= 1
            result = yield Attempt(given.text, links=True)
            if result is None:
                continue
            made = Draft(given, tokens, result)
            candidate = self._put_right(made.candidate())
            # Of equals, one with links: what is missing can be put where it belongs.
            if (self._things.num_wrong(candidate), not candidate.links) < (
                self._things.num_wrong(best),
                not best.links,
            ):
                draft, best = made, candidate
        return draft, self._forced(best)

    def _forced(self, candidate: Candidate) -> Candidate:
        """Put what is missing over the words that stand for it, or at the end."""
        for span, text in self._things.missing(candidate):
            # An escape within a word has none of its own.
            has_words = not text.startswith("\\")
            place = _place(candidate, span, text, self._things) if has_words else None
            edit = Edit(place, text) if place else _appended(candidate.text, text)
            candidate = _edited(candidate, [edit], span)
        return _edited(candidate, list(self._things.surplus(candidate)))

    # --- terms -----------------------------------------------------------------------------------

    def _with_terms(
        self, draft: Draft, best: Candidate
    ) -> Generator[Attempt, TextResult | None, Candidate]:
        """Put the terms that the model did not use."""
        for method in self._rules.term_methods:
            for span, form in self._terms.missing(best):
                if method == "replace":
                    best = self._replaced(best, span, form)
                elif self._left > 0:
                    attempt, given, tokens = self._forcing(method, draft, best, span, form)
                    if attempt is None:
                        continue
                    self._left -= 1
                    result = yield attempt
                    made = Draft(given, tokens, result) if result is not None else draft
                    candidate = self._forced(self._put_right(made.candidate()))
                    if self._terms.num_wrong(candidate) < self._terms.num_wrong(best):
                        draft, best = made, candidate
        return best

    def _forcing(
        self, method: str, draft: Draft, best: Candidate, span: Span, form: str
    ) -> tuple[Attempt | None, EditedText, dict[str, str]]:
        """An attempt whose translation has the term, if the model can be made to use it."""
        if method == "stand in":
            put = {match.span: match.form for match in self._sentence.terms}
            kept = {thing.span: thing.text for thing in self._sentence.things if draft.standins}
            given, tokens = _with_tokens(self._work, {**kept, **put}, _STANDINS[0], self._forms)
            return Attempt(given.text, links=True), given, tokens
        place = _linked_place(
            Candidate(draft.result.text, draft.result.links), draft.given.after(span), len(form)
        )
        if place is None:
            return None, draft.given, draft.standins
        prefix = draft.result.text[: place.start] + form
        return Attempt(draft.given.text, prefix, links=True), draft.given, draft.standins

    def _replaced(self, candidate: Candidate, span: Span, form: str) -> Candidate:
        place = _place(candidate, span, form, self._things, self._terms)
        return _edited(candidate, [Edit(place, form)], span) if place else candidate

    def _in_cases(self, candidate: Candidate) -> Candidate:
        """Give each translation of a term its letter case, where the sentence has it in several.

        A model writes all as the first one.
        """
        matches: dict[str, list[TermMatch]] = {}
        for match in self._sentence.terms:
            matches.setdefault(match.entry.source, []).append(match)
        several = {
            source: same
            for source, same in matches.items()
            if len({match.form for match in same}) > 1
        }
        if not several:
            return candidate
        found, edits = self._terms.found(candidate), []
        for source, same in several.items():
            for match, place in paired(same, found[source], candidate):
                written = candidate.text[place.start : place.end]
                opens = not has_word(candidate.text[: place.start])
                if (changed := match.in_case(written, opens=opens)) != written:
                    edits.append(Edit(place, changed))
        return _edited(candidate, edits)

    def used(self, candidate: Candidate) -> dict[str, int]:
        """How often each term's translation is in a candidate, at most as often as the term."""
        found = self._terms.found(candidate)
        counts: dict[str, int] = {}
        for match in self._sentence.terms:
            counts[match.entry.source] = counts.get(match.entry.source, 0) + 1
        return {source: min(count, len(found[source])) for source, count in counts.items()}


def _with_tokens(
    text: str, places: dict[Span, str], standin: str, forms: str
) -> tuple[EditedText, dict[str, str]]:
    """The text with a token in place of each part, neighbours with one; and what each stands for.

    Args:
        text: the sentence.
        places: parts of it, and what is put into the translation for each.
        standin: the format of a token.
        forms: the translations of the sentence's terms, which no token is part of.
    """
    groups: list[tuple[Span, str]] = []
    for span, put in sorted(places.items()):
        if groups and groups[-1][0].end == span.start:
            (start, _), before = groups.pop()
            span, put = Span(start, span.end), before + put
        groups.append((span, put))
    number, edits, tokens = 0, [], {}
    for span, put in groups:
        number += 1
        while standin % number in text or standin % number in forms:
            number += 1
        tokens[standin % number] = put
        edits.append(Edit(span, standin % number))
    return EditedText(text, edits), tokens


def _edited(candidate: Candidate, edits: Sequence[Edit], source: Span | None = None) -> Candidate:
    """The candidate after edits; with a link from `source` to the edit, which is then one."""
    if not edits:
        return candidate
    changed = EditedText(candidate.text, edits)
    moved = (link._replace(target=changed.after(link.target)) for link in candidate.links)
    links = [link for link in dict.fromkeys(moved) if link.target.start < link.target.end]
    if source is not None:
        links = [link for link in links if not overlap(link.target, changed.spans[0])]
        links.append(Link(source, changed.spans[0]))
        links.sort(key=lambda link: link.target)
    return Candidate(changed.text, links)


def _appended(text: str, put: str) -> Edit:
    """Puts a string at the end of a text, before its punctuation."""
    end = len(text.rstrip().rstrip(_ENDS))
    before = " " if end and not text[end - 1].isspace() else ""
    after = " " if text[end : end + 1].isalnum() else ""
    return Edit(Span(end, end), before + put + after)


def _place(candidate: Candidate, source: Span, put: str, *kept: Needs) -> Span | None:
    """The words that come from a part of the sentence, if nothing that is kept is among them."""
    place = _linked_place(candidate, source, len(put))
    if place is None:
        return None
    taken = (span for needs in kept for spans in needs.found(candidate).values() for span in spans)
    return None if any(overlap(place, span) for span in taken) else place


def _linked_place(candidate: Candidate, source: Span, length: int) -> Span | None:
    """The words that come from a part of the sentence, if they are few and together."""
    parts = candidate.linked(source)
    if not parts:
        return None
    place = Span(parts[0].start, max(part.end for part in parts))
    others = sum(
        link.target.end - link.target.start
        for link in candidate.links
        if link.target not in parts and overlap(link.target, place)
    )
    is_whole = place.end - place.start > max(40, 4 * length)
    return None if is_whole or others > length else place


def _rank(result: TextResult) -> tuple[bool, float]:
    """What to prefer of two translations of a sentence: one with a word, then the likelier one."""
    return has_word(result.text), _mean_log_probability(result)


def _mean_log_probability(result: TextResult) -> float:
    hypotheses = [sentence.hypotheses[0] for sentence in result.sentences if sentence.hypotheses]
    if not hypotheses:
        return 0.0  # copied
    total = sum(hypothesis.log_probability for hypothesis in hypotheses)
    return total / (result.num_target_tokens + len(hypotheses))

"""Chooses the attempts for one sentence, and makes its translation from their results.

`run` yields attempts and is sent their results, so that those of many sentences go together.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace

from model.bundle.spans import Span
from service.things.attempts import Attempt, Draft, Repair, rank
from service.things.carrying import needs_carrier
from service.things.checks import added, flaws
from service.things.edits import Edit, EditedText
from service.things.inner_sentences import (
    translated_messages,
    translated_quotes,
    with_number_signs,
    with_quoted,
)
from service.things.letter_case import LetterCase, recased, restored
from service.things.placing import (
    appended,
    copied,
    edited,
    linked_place,
    place,
    spaced,
    tidied,
    with_tokens,
    without_carriers,
)
from service.things.quotes import apostrophes_of, as_escaped
from service.things.runs import own_run, without_run
from service.things.scanned import ScannedSentence, TermRules
from service.things.sentence_needs import term_needs, thing_needs
from service.things.spacing import gaps_of, in_style
from service.things.term_uses import in_cases, used
from service.things.unit_links import with_things, with_units
from service.things.wanted import Candidate
from service.translation.blank_retries import has_word
from service.translation.results import TextResult, TranslationWarning, WarningKind, untranslated

MAX_ATTEMPTS = 4
"""The most translations of one sentence after the first."""
_MAX_DEPTH = 3


class SentenceRepair:
    """Makes the translation of one sentence.

    Args:
        sentence: the sentence.
        rules: the request's rules.
        links: whether the translation needs links.
        max_attempts: the most translations after the first.
        is_shown: whether clients see the first translation; it is then made without stand-ins.
        built: strings to put into the translation for some things, by the thing's place.
        depth: number of sentences that contain this one, each within the next.

    Attributes:
        forms: accepted translations of the glossary's terms, separated by spaces.
        warnings: the remaining flaws of the translation, once `run` has ended.
    """

    def __init__(
        self,
        sentence: ScannedSentence,
        rules: TermRules,
        *,
        links: bool,
        max_attempts: int = MAX_ATTEMPTS,
        is_shown: bool = False,
        built: Mapping[Span, str] | None = None,
        depth: int = 0,
    ) -> None:
        self._sentence = sentence
        self._rules = rules
        self._links = links
        self._has_links = links or bool(sentence.terms)  # in most attempts
        self._left = max_attempts
        self._is_shown = is_shown
        self._depth = depth
        self.forms = " ".join(sorted({f for match in sentence.terms for f in match.accepted}))
        self._terms = term_needs(sentence.terms)
        self._built: dict[Span, str] = dict(built or {})
        self._set_needs()
        self._work = sentence.text
        self._misplaced: list[str] = []
        self._invented: list[str] = []
        self._untranslated: list[str] = []
        self.warnings: list[TranslationWarning] = []

    def _set_needs(self) -> None:
        text, things, rules = self._sentence.text, self._sentence.things, self._rules
        codes = rules.source, rules.target
        self._spans = [thing.span for thing in things]
        self._things = thing_needs(text, things, *codes, self.forms, self._built)

    def run(self) -> Repair:
        """Yield attempts, take their results (None: the model failed), and return the translation.

        The first result is never None.
        """
        draft = yield from self._first()
        yield from self._build_messages()
        best = self._candidate(draft)
        if self._num_wrong(best):
            draft, best = yield from self._with_standins(draft, best)
            if self._has(WarningKind.QUOTES, best):
                best = yield from self._by_quotes(best)
            if self._has(WarningKind.REPETITION, best):
                best = yield from self._without_repeats(draft, best)
        best = self._forced(best)
        if self._terms and self._terms.num_wrong(best):
            best = yield from self._with_terms(draft, best)
        if self._terms:
            best = in_cases(best, self._sentence.terms, self._terms)
        if self._links:
            best = with_units(best, self._sentence.terms, self._terms)
            best = with_things(best, self._things, self._built)
        best = in_style(self._sentence, self._without_invented(best), self._things, self._terms)
        best = tidied(self._sentence.text, self._restored(best))
        if has_word(self._sentence.text) and not has_word(best.text):
            best = copied(self._sentence.text)
        self.warnings = self._all_warnings(best)
        return best

    # --- letter case -----------------------------------------------------------------------------

    def _first(self) -> Generator[Attempt, TextResult | None, Draft]:
        """The translation of the sentence, in the letter case that is better for it."""
        sentence, case = self._sentence, self._sentence.case
        spans = [thing.span for thing in sentence.things]
        changed = recased(sentence.text, case, spans) if case is not LetterCase.USUAL else ""
        compares = case not in (LetterCase.USUAL, LetterCase.CAPITALS)
        if case is LetterCase.CAPITALS:
            self._work = changed
        given, tokens = self._carried()
        result = yield Attempt(given.text, links=self._has_links, scores=compares)
        assert result is not None, "the first translation was made"
        draft = Draft(given, tokens, result)
        if not compares:
            return draft
        if case is not LetterCase.WORD or result.text == sentence.text:
            before, self._work = self._work, changed
            given, tokens = self._carried()
            other = yield Attempt(given.text, links=self._has_links, scores=True)
            if other is not None and rank(other) > rank(result):
                return Draft(given, tokens, other)
            self._work = before
        self._sentence = replace(sentence, case=LetterCase.USUAL)
        return draft

    def _restored(self, candidate: Candidate) -> Candidate:
        """The candidate with escaped marks and letter case as in the sentence."""
        text, quotes, places = self._sentence.text, self._sentence.quotes, self._places(candidate)
        candidate = edited(candidate, as_escaped(text, quotes, candidate.text, places))
        case, dates = self._sentence.case, self._things.dates(candidate)
        if case is LetterCase.USUAL:
            return candidate
        found = [place for place in self._places(candidate) if place not in dates]
        return replace(candidate, text=restored(candidate.text, case, self._rules.target, found))

    # --- things ----------------------------------------------------------------------------------

    def _carried(self) -> tuple[EditedText, dict[str, str]]:
        """The sentence as the model reads it first: stand-ins for what it would damage."""
        if self._is_shown:
            return EditedText(self._work, ()), {}
        return self._with_tokens(self._fragile())

    def _with_tokens(
        self, places: Mapping[Span, str], first: int = 0
    ) -> tuple[EditedText, dict[str, str]]:
        """The sentence with carriers in place of some parts, of the model's `first` form on."""
        return with_tokens(
            self._work, places, self._rules.carriers[first:], self.forms, self._plain()
        )

    def _fragile(self) -> dict[Span, str]:
        things, built, carriers = self._sentence.things, self._built, self._rules.carriers
        return {t.span: t.text for t in things if t.span in built or needs_carrier(t, carriers)}

    def _plain(self) -> Iterator[Edit]:
        """Times and escaped marks, in the form that the model reads."""
        yield from (Edit(span, given) for span, given in self._things.given().items())
        for quote in self._sentence.quotes:
            if quote.is_escaped:
                yield Edit(quote.span, "'" if "'" in quote.text or "39" in quote.text else '"')
        yield from (Edit(span, "'") for span in apostrophes_of(self._work))
        gaps = gaps_of(self._work, self._sentence.things)
        yield from (Edit(Span(gap, gap), " ") for gap in gaps)

    def _candidate(self, draft: Draft) -> Candidate:
        """The translation, with words in a wrong letter case and other flaws corrected."""
        texts = {t.span: t.text for t in self._sentence.things}
        built = {texts[span]: put for span, put in self._built.items() if span in texts}
        candidate = draft.candidate(built)
        candidate = edited(candidate, list(self._things.in_place(candidate)))
        run = without_run(self._sentence.text, candidate.text)
        return edited(candidate, [run]) if run else candidate

    def _places(self, candidate: Candidate) -> list[Span]:
        return [span for spans in self._things.found(candidate).values() for span in spans]

    def _flaws(self, candidate: Candidate) -> list[TranslationWarning]:
        if not self._rules.kinds:
            return []
        text, places = self._sentence.text, self._places(candidate)
        found = flaws(text, candidate.text, self._spans, places)  # "%%s" has a "%s" as well:
        alike = found and flaws(text, candidate.text, self._places(Candidate(text)), places)
        return min(found, alike, key=len)

    def _num_wrong(self, candidate: Candidate) -> int:
        flaws = (*self._flaws(candidate), *self._added(candidate))
        return self._things.num_wrong(candidate) + len(flaws)

    def _added(self, candidate: Candidate) -> list[str]:
        """Numbers, currencies and names of days that the sentence doesn't have."""
        if not self._sentence.things:
            return []
        languages = self._rules.source, self._rules.target
        places = self._places(candidate)
        return added(self._sentence.text, candidate.text, languages, self._spans, places)

    def _with_standins(
        self, draft: Draft, best: Candidate
    ) -> Generator[Attempt, TextResult | None, tuple[Draft, Candidate]]:
        """Translate with something in place of what is missing, and of everything."""
        fragile = self._fragile()
        missing = fragile | dict(self._things.missing(best))
        everything = self._things.preferred() | missing
        tried = [draft.given.text]
        rounds = [(0, missing), (0, everything), (1, missing), (2, everything)]
        if self._things.give_other(best):
            rounds.insert(0, (-1, fragile))
        for standin, places in rounds:
            if self._left <= 0 or not self._num_by_standins(best):
                break
            given, tokens = self._with_tokens(places, max(0, standin))
            if (standin >= 0 and not tokens) or given.text in tried:
                continue
            tried.append(given.text)
            # Alignments take long: only what remains missing needs them.
            result = yield Attempt(given.text, links=self._has_links or self._left == 1)
            self._left -= 1
            if result is None:
                continue
            made = Draft(given, tokens, result)
            candidate = self._candidate(made)
            # Of equals, one with a stand-in: its remains show where the thing belongs.
            is_first = bool(tokens) and draft.given.text == tried[0] and not best.links
            if self._num_wrong(candidate) - is_first < self._num_wrong(best):
                draft, best = made, candidate
        if self._left > 0 and self._things.missing(best) and not best.links:
            self._left -= 1
            result = yield Attempt(draft.given.text, links=True)
            if result is not None:
                draft = replace(draft, result=result)
                best = min(self._candidate(draft), best, key=self._num_wrong)
        return draft, best

    def _num_by_standins(self, candidate: Candidate) -> int:
        """The number of flaws without those that are mended in other ways."""
        others = (WarningKind.QUOTES, WarningKind.REPETITION)
        return self._num_wrong(candidate) - sum(f.kind in others for f in self._flaws(candidate))

    def _forced(self, candidate: Candidate) -> Candidate:
        """Put what is missing over the words that stand for it, or at the end."""
        self._misplaced = []
        for span, text in self._things.to_put(candidate):
            # An escape within a word has none of its own.
            there = None if text[:1] == "\\" else place(candidate, span, text, self._things)
            if there is None:
                self._misplaced.append(text)
            edit = spaced(candidate.text, there, text) if there else appended(candidate.text, text)
            candidate = edited(candidate, [edit], span)
        return edited(candidate, list(self._things.surplus(candidate)))

    def _without_repeats(self, draft: Draft, best: Candidate) -> Repair:
        """Translate without repetition, or copy what the sentence itself repeats."""
        if self._left > 0:
            self._left -= 1
            text, run = self._work, own_run(self._work)
            if run is not None:
                places = self._fragile() | {run: text[slice(*run)]}
                given, tokens = self._with_tokens(places)
                draft = replace(draft, given=given, standins=tokens)
            result = yield Attempt(draft.given.text, links=True, repeats=run is not None)
            if result is not None:
                candidate = self._candidate(replace(draft, result=result))
                if self._num_wrong(candidate) < self._num_wrong(best):
                    return candidate
        return best

    def _without_invented(self, candidate: Candidate) -> Candidate:
        """The candidate without carriers that the model made up."""
        known = (self._sentence.text, self.forms, *self._built.values())
        candidate, self._invented = without_carriers(candidate, self._rules.carriers, known)
        return candidate

    def _has(self, kind: WarningKind, candidate: Candidate) -> bool:
        return any(flaw.kind is kind for flaw in self._flaws(candidate))

    def _all_warnings(self, candidate: Candidate) -> list[TranslationWarning]:
        kept = ["", *self._untranslated] if candidate.is_source else self._untranslated
        untranslated_parts = [untranslated(self._sentence.text, part) for part in kept]
        if not self._rules.kinds:
            return untranslated_parts
        found = [(WarningKind.MISSING, what) for _, what in self._things.missing(candidate)]
        found += [(WarningKind.PLACE, what) for what in self._misplaced if what in candidate.text]
        found += [(WarningKind.SIGNS, what) for what in self._invented]
        found += [(WarningKind.ADDED, what) for what in self._added(candidate)]
        found += [(WarningKind.ADDED, what) for what in self._things.repeated(candidate)]
        warnings = [TranslationWarning(*each, self._sentence.text) for each in found]
        return untranslated_parts + warnings + self._flaws(candidate)

    # --- sentences within the sentence -----------------------------------------------------------

    def _inner(self, text: str, *, is_plural: bool = False) -> SentenceRepair:
        """The repair of a part of the sentence that is translated by itself."""
        sentence = ScannedSentence.scanned(text, self._rules)
        if is_plural:
            sentence = with_number_signs(sentence)
        return SentenceRepair(
            sentence, self._rules, links=False, max_attempts=2, depth=self._depth + 1
        )

    def _build_messages(self) -> Generator[Attempt, TextResult | None, None]:
        """Translate the branches of ICU messages."""
        make_inner = self._inner if self._depth < _MAX_DEPTH else None
        built = yield from translated_messages(self._sentence, make_inner, self._untranslated)
        if built:
            self._built |= built
            self._set_needs()

    def _by_quotes(self, best: Candidate) -> Repair:
        """Translate quotations by themselves, and the rest with stand-ins for them."""
        sentence = self._sentence
        if self._depth >= _MAX_DEPTH or sentence.terms:
            return best
        built = yield from translated_quotes(sentence, self._inner)
        if not built:
            return best
        whole = SentenceRepair(
            with_quoted(sentence, built),
            self._rules,
            links=self._links,
            max_attempts=1,
            built={**self._built, **built},
            depth=self._depth + 1,
        )
        candidate = yield from whole.run()
        return candidate if self._num_wrong(candidate) < self._num_wrong(best) else best

    # --- terms -----------------------------------------------------------------------------------

    def _with_terms(
        self, draft: Draft, best: Candidate
    ) -> Generator[Attempt, TextResult | None, Candidate]:
        """Put the terms that the model did not use."""
        for method in self._rules.term_methods:
            for span, form in self._terms.missing(best):
                if method == "replace":
                    there = place(best, span, form, self._things, self._terms)
                    best = edited(best, [Edit(there, form)], span) if there else best
                elif self._left > 0:
                    attempt, given, tokens = self._forcing(method, draft, best, span, form)
                    if attempt is None:
                        continue
                    self._left -= 1
                    result = yield attempt
                    made = Draft(given, tokens, result) if result is not None else draft
                    candidate = self._forced(self._candidate(made))
                    if self._terms.num_wrong(candidate) < self._terms.num_wrong(best):
                        draft, best = made, candidate
        return best

    def _forcing(
        self, method: str, draft: Draft, best: Candidate, span: Span, form: str
    ) -> tuple[Attempt | None, EditedText, dict[str, str]]:
        """An attempt whose translation has the term, if the model can be made to use it."""
        if method == "stand in":
            put = {match.span: match.form for match in self._sentence.terms}
            kept = self._things.preferred() if draft.standins else self._fragile()
            given, tokens = self._with_tokens({**kept, **put})
            return Attempt(given.text, links=True), given, tokens
        there = linked_place(
            Candidate(draft.result.text, draft.result.links), draft.given.after(span), len(form)
        )
        if there is None:
            return None, draft.given, draft.standins
        prefix = draft.result.text[: there.start] + form
        return Attempt(draft.given.text, prefix, links=True), draft.given, draft.standins

    def used(self, candidate: Candidate) -> dict[str, int]:
        """See `term_uses.used`."""
        return used(candidate, self._sentence.terms, self._terms)

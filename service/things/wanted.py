"""The strings that the translation of a sentence needs, and those that a candidate lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from model.bundle.spans import Span
from service.glossaries.glossary import TermMatch
from service.things import dates, number_reader
from service.things.dates import Date
from service.things.edits import Edit
from service.things.number_reader import Number
from service.things.occurrences import Occurrences
from service.things.thing_forms import ThingForms
from service.translation.links import Link

_CAPITALS = re.compile(r"(?<!\w)[A-ZÀ-ÖØ-ÞΑ-ΩА-Я]{2,}(?!\w)")
# Of a time: what says that "Uhr" stands elsewhere, or that the string is no time in a sentence.
_TIME_BEFORE = re.compile(r"(?:\d|Uhr)(?:\s?[,/–—-]|\s(?:bis|und|oder))\s?$")
_TIME_BEHIND = re.compile(r"\s*(?:uhr\b|h\b|(?:[,/–—-]|bis\b|und\b|oder\b)\s?\d)", re.IGNORECASE)
_NUMBER = re.compile(r"[\d.,:/–-]+")
_NO_BREAK_SPACES = frozenset("\u00a0\u202f")


@dataclass(frozen=True)
class Candidate:
    """A possible translation of a sentence.

    Attributes:
        text: the translation.
        links: links from characters of the sentence to characters of the translation.
        is_source: whether the sentence stands here as it is: the model wrote no words.
    """

    text: str
    links: Sequence[Link] = ()
    is_source: bool = False

    def linked(self, source: Span) -> list[Span]:
        """The places of the words that translate a part of the sentence, in order."""
        return sorted(
            link.target
            for link in self.links
            if link.source.start < source.end and source.start < link.source.end
        )


@dataclass(frozen=True)
class Need:
    """A string of a sentence that its translation has to contain.

    Attributes:
        spans: places of the string in the sentence.
        forms: correct forms in the translation; the first is the one to put there.
        wrong: forms that models write by mistake; they are replaced by the first correct form.
        may_repeat: whether the translation may have the string more often than the sentence.
        repeats_words: whether only forms in words may be there more often, not digits.
        puts: the string to put for each place; empty for the first form.
        given: the string that the model reads instead; None for the string itself, or a stand-in.
        is_capitals: whether another word in capitals may take its place.
        is_time: whether it is a time, which "Uhr" may already follow.
        written: spellings of the string in the sentence, if several: $5 and 5 $.
        better: better forms by correct ones.
        said: the number in words or the date that the string says. The translation may have its own
            words.
        other: the string in other words, for the model to read if its translation lacks it.
    """

    spans: tuple[Span, ...]
    forms: tuple[str, ...]
    wrong: tuple[str, ...] = ()
    may_repeat: bool = False
    repeats_words: bool = False
    puts: tuple[str, ...] = ()
    given: str | None = None
    is_capitals: bool = False
    is_time: bool = False
    written: tuple[str, ...] = ()
    better: Mapping[str, str] = field(default_factory=dict)
    said: Number | Date | None = None
    other: str | None = None

    def joined(self, name: str, other: str, spans: tuple[Span, ...], forms: ThingForms) -> Need:
        """The need with the places where the sentence writes the same string in another way."""
        return replace(
            self,
            spans=tuple(sorted(self.spans + spans)),
            forms=tuple(dict.fromkeys((*self.forms, *forms.right))),
            written=(*(self.written or (name,)), other),
            given=self.given or forms.given,
            said=self.said or forms.said,
            other=self.other or forms.other,
        )


class Needs:
    """The needs of a sentence, and how far a candidate meets them.

    Args:
        needs: the needs, each by a name.
        text: the sentence, if the names are strings of it. What is counted in a translation is
            counted in the sentence in the same way, so that a copy of the sentence meets all needs.
        source: BCP-47 code of the sentence.
        target: BCP-47 code of the translation, if it may have numbers in words.
    """

    def __init__(
        self, needs: dict[str, Need], text: str | None = None, source: str = "", target: str = ""
    ) -> None:
        self._needs = needs
        self._text = text or ""
        self.source = source
        self.target = target
        self._said = {need.said: name for name, need in needs.items() if need.said}
        self._wanted = {name: need.forms for name, need in needs.items()}
        self._parts: frozenset[str] = frozenset()  # of words: "%s" of "%s4"
        self._least = self._most = {name: len(need.spans) for name, need in needs.items()}
        if text is not None:
            self._count(text)
        self._found: dict[str, dict[str, list[Span]]] = {}  # by translation: asked for many times

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._needs)

    def _count(self, text: str) -> None:
        names = {n: (*(need.written or (n,)), *need.forms) for n, need in self._needs.items()}
        found = Occurrences(text, names).spans
        few = [name for name, spans in found.items() if len(spans) < self._least[name]]
        if few:
            self._parts = frozenset(few)
            found = Occurrences(text, names, self._parts).spans
        counts = self._least
        self._least = {name: min(count, len(found[name])) for name, count in counts.items()}
        self._most = {name: max(count, len(found[name])) for name, count in counts.items()}

    def given(self) -> dict[Span, str]:
        """The strings that the model reads instead of parts of the sentence, by place."""
        needs = self._needs.values()
        return {span: need.given for need in needs if need.given for span in need.spans}

    def give_other(self, candidate: Candidate) -> bool:
        """Let the model read other words for what a candidate lacks: digits, another date format.

        Returns:
            Whether there are such words.
        """
        lacking = {span for span, _ in self.missing(candidate)}
        names = [n for n, need in self._needs.items() if need.other and lacking & {*need.spans}]
        for name in names:
            self._needs[name] = replace(self._needs[name], given=self._needs[name].other)
        return bool(names)

    def preferred(self) -> dict[Span, str]:
        """The form to put for each part of the sentence, by place."""
        needs = self._needs.values()
        return {span: need.forms[0] for need in needs for span in need.spans}

    def found(self, candidate: Candidate) -> dict[str, list[Span]]:
        """The places in a candidate that meet each need, by the need's name."""
        text = candidate.text
        if text not in self._found:
            found = Occurrences(text, self._wanted, self._parts).spans
            for span, said in self._read(text):
                if said in self._said:
                    name = self._said[said]
                    found[name] = sorted({*found[name], span})
            self._found[text] = found
        return self._found[text]

    def _read(self, text: str) -> Iterator[tuple[Span, Number | Date]]:
        """The numbers in words and the dates of a translation, if any are needed."""
        kinds = {type(said) for said in self._said}
        if Number in kinds and number_reader.are_read_in(self.target):
            yield from number_reader.numbers_in(text, self.target)
            yield from number_reader.small_numbers_in(text, self.target)
        if Date in kinds and dates.are_read_in(self.target):
            yield from dates.dates_in(text, self.target)

    def to_put(self, candidate: Candidate) -> list[tuple[Span, str]]:
        """The missing strings to put into a candidate: no small numbers, which idioms lack."""
        small = {
            span
            for need in self._needs.values()
            if isinstance(need.said, Number) and need.said.is_small
            for span in need.spans
            if self._is_word(span)
        }
        return [(span, put) for span, put in self.missing(candidate) if span not in small]

    def _is_word(self, span: Span) -> bool:
        return not any(map(str.isdigit, self._text[slice(*span)]))

    def others(self, candidate: Candidate) -> list[Span]:
        """The places in a candidate of all but dates and numbers."""
        found = self.found(candidate)
        names = (
            name
            for name, need in self._needs.items()
            if need.said is None and not _NUMBER.fullmatch(name)
        )
        return [span for name in names for span in found[name]]

    def dates(self, candidate: Candidate) -> list[Span]:
        """The places of the sentence's dates in a candidate."""
        found = self.found(candidate)
        names = (n for n, need in self._needs.items() if isinstance(need.said, Date))
        return [span for name in names for span in found[name]]

    def places(self, candidate: Candidate) -> Iterator[tuple[Sequence[Span], Sequence[Span]]]:
        """The places of each need in the sentence, and those in a candidate."""
        for name, spans in self.found(candidate).items():
            yield self._needs[name].spans, spans

    def num_wrong(self, candidate: Candidate) -> int:
        """The number of strings that a candidate lacks, or has too often."""
        found = self.found(candidate)
        num_missing = sum(max(0, self._num_missing(name, found, candidate)) for name in self._needs)
        return num_missing + len(self.repeated(candidate))

    def _num_missing(self, name: str, found: dict[str, list[Span]], candidate: Candidate) -> int:
        need = self._needs[name]
        count = self._least[name] - len(found[name])
        if count > 0 and need.is_capitals:  # NATO can be OTAN, and an emphasised word translated
            wanted = sum(len(each.spans) for each in self._needs.values() if each.is_capitals)
            return min(count, wanted - len(_CAPITALS.findall(candidate.text)))
        return count

    def repeated(self, candidate: Candidate) -> list[str]:
        """The names of needs that a candidate meets too often, once for each surplus string.

        Small numbers in words may be articles: "ein" can be "one" or "a".
        """
        repeated = []
        for name, spans in self.found(candidate).items():
            need = self._needs[name]
            if need.may_repeat:
                if not need.repeats_words:
                    continue
                spans = [s for s in spans if any(map(str.isdigit, candidate.text[slice(*s)]))]
            repeated += [name] * (len(spans) - self._most[name])
        return repeated

    def missing(self, candidate: Candidate) -> list[tuple[Span, str]]:
        """The places in the sentence of strings that a candidate lacks, with the strings to put."""
        found, missing = self.found(candidate), []
        for name, need in self._needs.items():
            count = self._num_missing(name, found, candidate)
            if count > 0:
                # Digits are missing rather than words, of which idioms have others.
                met = {
                    span: (self._is_met(span, found[name], candidate), self._is_word(span))
                    for span in need.spans
                }
                puts = dict(zip(need.spans, need.puts, strict=True)) if need.puts else {}
                missing += [
                    (span, puts.get(span, need.forms[0]))
                    for span in sorted(met, key=met.__getitem__)[:count]
                ]
        return sorted(missing)

    @staticmethod
    def _is_met(span: Span, found: Sequence[Span], candidate: Candidate) -> bool:
        return any(
            linked.start < there.end and there.start < linked.end
            for linked in candidate.linked(span)
            for there in found
        )

    def in_place(self, candidate: Candidate) -> Iterator[Edit]:
        """Edits that correct wrong forms in their places: letter case, separators, other hours."""
        found = self.found(candidate)
        taken = [span for spans in found.values() for span in spans]
        for name, need in self._needs.items():
            count = self._num_missing(name, found, candidate)
            put = need.forms[0]
            wrong = need.wrong or _other_cases(candidate.text, need.forms[0])
            if count <= 0 or not wrong:
                continue
            for span in Occurrences(candidate.text, {name: wrong}).spans[name][:count]:
                if not any(span.start < other.end and other.start < span.end for other in taken):
                    taken.append(span)
                    yield Edit(without_double_stop(candidate.text, span, put), put)

    def bettered(self, candidate: Candidate, *kept: Needs) -> Iterator[Edit]:
        """Edits that put better forms in the place of correct ones.

        Args:
            candidate: a translation.
            kept: needs whose places stay as they are.
        """
        text, found = candidate.text, self.found(candidate)
        taken = [s for needs in kept for spans in needs.found(candidate).values() for s in spans]
        for name, spans in found.items():
            need = self._needs[name]
            if not need.better or len(spans) > len(need.spans):
                continue
            for span in spans:
                form = text[slice(*span)]
                put = need.better.get(form)
                is_thing = form in self._needs or any(overlap(span, other) for other in taken)
                if put is not None and not is_thing and _takes(text, span, is_time=need.is_time):
                    yield Edit(span, put)

    def with_spaces(self, candidate: Candidate, text: str) -> Candidate:
        """A candidate with the no-break spaces of the sentence, which models write as plain spaces.

        Only a space after a needed string is changed, such as one between a number and its unit.
        """
        if not any(space in text for space in _NO_BREAK_SPACES):
            return candidate
        characters = list(candidate.text)
        for name, spans in self.found(candidate).items():
            spaces = {text[span.end : span.end + 1] for span in self._needs[name].spans}
            if len(spaces) == 1 and spaces <= _NO_BREAK_SPACES:
                [space] = spaces
                for _, end in spans:
                    is_plain = candidate.text[end : end + 1] == " "
                    if is_plain and not candidate.text[end - 1].isalpha():  # 5 can become "fünf"
                        characters[end] = space
        return replace(candidate, text="".join(characters))

    def surplus(self, candidate: Candidate) -> Iterator[Edit]:
        """Edits that remove surplus strings, each with the space before it."""
        for name, spans in self.found(candidate).items():
            need = self._needs[name]
            for span in () if need.may_repeat else spans[self._most[name] :]:
                has_space = candidate.text[span.start - 1 : span.start] == " "
                yield Edit(Span(span.start - has_space, span.end), "")


def paired(
    matches: Sequence[TermMatch], places: Sequence[Span], candidate: Candidate
) -> list[tuple[TermMatch, Span]]:
    """Each occurrence of a term with the place of its translation; all occurrences, or none.

    Args:
        matches: occurrences of the term in the sentence.
        places: places of the term's translations in the candidate.
        candidate: the translation; its links decide which place belongs to which occurrence.
    """
    if len(matches) != len(places):
        return []
    linked = [
        [place for place in places if any(overlap(place, s) for s in candidate.linked(m.span))]
        for m in matches
    ]
    if any(len(found) != 1 for found in linked) or len({f[0] for f in linked}) < len(places):
        linked = [[place] for place in places]  # in the order of the sentence
    return [(match, place) for match, [place] in zip(matches, linked, strict=True)]


def _takes(text: str, span: Span, *, is_time: bool) -> bool:
    """Whether a better form fits into its place in a text."""
    if text[span.end : span.end + 1].isalnum() or re.match(r"-\w", text[span.end :]):
        return False
    if not is_time:
        return True
    before = text[max(0, span.start - 12) : span.start]
    is_in_sentence = before.rstrip()[-1:].isalpha()
    return is_in_sentence and not (
        _TIME_BEFORE.search(before) or _TIME_BEHIND.match(text, span.end)
    )


def without_double_stop(text: str, span: Span, put: str) -> Span:
    """The part of a text that a string replaces, so that no full stop is doubled after it.

    Args:
        text: the text.
        span: the place of the part.
        put: the string that replaces it.
    """
    doubles = put.endswith(".") and text[span.end : span.end + 1] == "."
    return Span(span.start, span.end + doubles)


def overlap(one: Span, other: Span) -> bool:
    """Whether two parts have a character in common."""
    return one.start < other.end and other.start < one.end


def _other_cases(text: str, wanted: str) -> tuple[str, ...]:
    """Ways in which a text writes a string in another letter case."""
    lower, start = text.lower(), 0
    if len(lower) != len(text) or not any(map(str.isalpha, wanted)):
        return ()
    found = []
    while (start := lower.find(wanted.lower(), start)) >= 0:
        written = text[start : start + len(wanted)]
        if written != wanted:
            found.append(written)
        start += len(wanted)
    return tuple(dict.fromkeys(found))

"""Glossaries: terms of a text, and the accepted forms of their translations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from model.bundle.spans import Span
from service.errors import InvalidArgumentError
from service.glossaries.placeholders import PLACEHOLDER

MAX_ENTRIES = 1000
"""Most entries in a request's own glossary; a file may have more."""
MAX_SOURCE_CHARACTERS = 200
MAX_TARGET_CHARACTERS = 500
MAX_FORMS = 20

_TOKEN = re.compile(r"\w++|[^\w\s]")


@dataclass(frozen=True)
class Entry:
    """A term and its translation.

    Attributes:
        source: the term. It matches exactly, with a capital first letter, and in capitals.
        forms: forms accepted in a translation; the first is inserted if the model uses none.
    """

    source: str
    forms: tuple[str, ...]


@dataclass(frozen=True)
class TermMatch:
    """A term in a text.

    Attributes:
        entry: entry of the term.
        span: position in the text.
        text: the term in the spelling of the text.
    """

    entry: Entry
    span: Span
    text: str

    @property
    def form(self) -> str:
        """The translation to insert, in the letter case of the term in the text."""
        return _cased(self.entry.forms[0], self.entry.source, self.text)

    def in_case(self, written: str, *, opens: bool) -> str:
        """A translation of the term, in the letter case of the term in the text.

        Args:
            written: translation in any case. A capital first letter stays.
            opens: whether it begins a sentence, with a capital letter.
        """
        for form in self.entry.forms:
            if written not in (form, *_variants(form)):
                continue
            changed = _cased(form, self.entry.source, self.text)
            was_capitals = written == form.upper() != form[:1].upper() + form[1:]
            keeps = written[:1].isupper() and (opens or not was_capitals)
            return changed[:1].upper() + changed[1:] if keeps else changed
        return written

    @property
    def accepted(self) -> tuple[str, ...]:
        """All accepted translations: as written, with a capital first letter, and in capitals.

        The first is `form`.
        """
        forms = [form for each in self.entry.forms for form in (each, *_variants(each))]
        return tuple(dict.fromkeys([self.form, *forms]))


@dataclass(frozen=True)
class Glossary:
    """Terms and their translations.

    Attributes:
        entries: entries in order; of several with the same source, the first counts.
        others: glossary of further terms; for the same term, `entries` take precedence.
    """

    entries: tuple[Entry, ...] = ()
    others: Glossary | None = None

    def __bool__(self) -> bool:
        """Whether the glossary has any terms."""
        return bool(self.entries or self.others)

    @classmethod
    def of(
        cls,
        pairs: Iterable[tuple[str, str]],
        *,
        field: str = "glossary.entries",
        max_entries: int = MAX_ENTRIES,
    ) -> Glossary:
        """Make a glossary from pairs of a term and its translation.

        Args:
            pairs: terms and translations; several accepted forms are written `Hund|Hundes|Hunde`.
            field: name of the field, for messages.
            max_entries: most entries.

        Raises:
            InvalidArgumentError: there are too many entries, or one is empty or too long; names it.
        """
        entries = []
        for index, (source, target) in enumerate(pairs):
            if index >= max_entries:
                raise InvalidArgumentError(field, f"more than {max_entries:,} entries, the limit")
            entries.append(_entry(f"{field}[{index}]", source, target))
        return cls(tuple(entries))

    def over(self, other: Glossary) -> Glossary:
        """Both glossaries; for the same term, this one takes precedence."""
        return Glossary(self.entries, other) if other else self

    @cached_property
    def _index(self) -> tuple[dict[str, Entry], dict[str, tuple[int, ...]]]:
        """Entries by matching text, and the lengths of matches by their first token."""
        entries: dict[str, Entry] = {}
        lengths: dict[str, set[int]] = {}
        for entry in self.entries:
            for written in dict.fromkeys((entry.source, *_variants(entry.source))):
                if entries.setdefault(written, entry) is entry:
                    first = _TOKEN.search(written)
                    assert first is not None, "no entry is blank"
                    lengths.setdefault(first.group(), set()).add(len(written))
        longest_first = {
            token: tuple(sorted(found, reverse=True)) for token, found in lengths.items()
        }
        return entries, longest_first

    def prepare(self) -> None:
        """Build the tables of `matches` and `placeholders` before the first text needs them."""
        _ = self._index, self.placeholders

    @cached_property
    def placeholders(self) -> frozenset[str]:
        """Parts of the translations that look like placeholders of markup."""
        forms = (form for entry in self.entries for form in entry.forms)
        own = frozenset(PLACEHOLDER.findall("\n".join(forms)))
        return own | self.others.placeholders if self.others else own

    def matches(self, text: str, taken: Sequence[Span] = ()) -> list[TermMatch]:
        """Find the terms of a text, in order, on word boundaries; long terms take precedence.

        Args:
            text: any text.
            taken: parts of the text to skip, in order.
        """
        found: list[TermMatch] = []
        end, blocked = 0, iter([*taken, Span(len(text), len(text))])
        block = next(blocked)
        for token in _TOKEN.finditer(text) if self else ():
            start = token.start()
            while block.end <= start < len(text) and block.start < len(text):
                block = next(blocked)
            if start < end or start >= block.start:
                continue
            for entry, length in self._beginning(token.group(), text, start):
                span = Span(start, start + length)
                if span.end <= block.start and _is_whole(text, span):
                    found.append(TermMatch(entry, span, text[start : span.end]))
                    end = span.end
                    break
        return found

    def _beginning(self, token: str, text: str, start: int) -> list[tuple[Entry, int]]:
        """The entries that match at a token, with their lengths, the longest first."""
        entries, lengths = self._index
        found = [
            (entry, length)
            for length in lengths.get(token, ())
            if (entry := entries.get(text[start : start + length])) and start + length <= len(text)
        ]
        if self.others:
            found += self.others._beginning(token, text, start)
            found.sort(key=lambda pair: -pair[1])
        return found


NO_GLOSSARY = Glossary()


def _entry(field: str, source: str, target: str) -> Entry:
    source = source.strip()
    forms = tuple(form for part in target.split("|", MAX_FORMS) if (form := part.strip()))
    for name, value, most in (
        ("source_term", source, MAX_SOURCE_CHARACTERS),
        ("target_term", target, MAX_TARGET_CHARACTERS),
    ):
        if len(value) > most:
            raise InvalidArgumentError(
                f"{field}.{name}", f"{len(value):,} characters, the limit is {most}"
            )
        if any(character in value for character in "\0\n\r\t"):
            raise InvalidArgumentError(f"{field}.{name}", "contains a tab, a line break or a NUL")
    if not _TOKEN.search(source):
        raise InvalidArgumentError(f"{field}.source_term", "is empty")
    if not forms:
        raise InvalidArgumentError(f"{field}.target_term", "is empty")
    if len(forms) > MAX_FORMS:
        raise InvalidArgumentError(
            f"{field}.target_term", f"more than {MAX_FORMS} forms, the limit"
        )
    return Entry(source, forms)


def _variants(term: str) -> tuple[str, ...]:
    """The term with a capital first letter, and in capitals."""
    return (term[:1].upper() + term[1:], term.upper())


def _cased(form: str, source: str, written: str) -> str:
    if written == source:
        return form
    if written == source.upper() and sum(map(str.isalpha, written)) > 1:
        return form.upper()
    return form[:1].upper() + form[1:]


def _is_whole(text: str, span: Span) -> bool:
    """Whether a part of a text is not part of a longer word."""
    return not (_continues(text, span.start) or _continues(text, span.end))


def _continues(text: str, position: int) -> bool:
    """Whether a word has characters on both sides of a position."""
    around = text[max(0, position - 1) : position + 1]
    return 0 < position < len(text) and all(c.isalnum() or c == "_" for c in around)

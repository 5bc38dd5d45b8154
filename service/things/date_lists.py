"""Lists of days: those of an English sentence, and how German writes them.

Small models leave such lists half in English, and lose what links their days: "3. April 10 und 17"
for "April 3, 10 and 17", "1. Mai 2. Juni" for "May 1 and June 2".
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from model.bundle.spans import Span
from service.things.date_scan import VERBS, is_day, search_before
from service.things.dates import Date, date_names, is_month, months_of, names_of
from service.things.edits import Edit
from service.things.wanted import overlap

_MONTHS = "|".join(months_of("de"))
_LINK = re.compile(r"(?:,?\s(?=[a-z])|\s?)(,|and|or|to|[-–])\s?")
_GERMAN_LINKS = {",": ", ", "and": " und ", "or": " oder ", "to": " bis ", "-": "–"}
# Behind the last day of a list, where it counts nothing: "May 1 and 20 people came".
_BEHIND_DAY = re.compile(
    r"\s?[.;:!?)\"”]|,\s(?!\d)|,?\s\d{4}\b|\Z|\s(?:and|or)\s(?!\d)|\s(?:are|as|at|because|but|for|from|he|i|if|in|is|it|of|she"
    r"|so|the|they|this|until|was|we|were|when|where|while|will|with|you)\b",
    re.IGNORECASE,
)
# Before days that stand before "May" or "March", which are verbs as well.
_BEFORE_DAYS = re.compile(
    r"\b(?:on|from|between|until|till|by|before|after|since|for)\s(?:the\s)?\Z", re.IGNORECASE
)
_MOST_LISTS = 8  # of a sentence; each is looked for in the whole translation
# In a translation: what stands between two days, before the first one and behind the last one.
_GAP = re.compile(rf"\.?(?:\s?(?:[,–-]|und|oder|bis|{_MONTHS})){{0,3}}\s?")
_HEAD = re.compile(rf"(?<!\d\s)(?<!\.\s)\b(?:{_MONTHS})\s\Z")
_TAIL = re.compile(rf"\.?\s(?:{_MONTHS})\b|\.(?=\s[\da-zäöü])|(?!\w|[.,:–-]\d|\s[A-ZÄÖÜ])")


@dataclass(frozen=True)
class DateList:
    """Some days of an English sentence, side by side.

    Attributes:
        span: the place of the list.
        days: the days, in order.
        links: what stands between them: ",", "and", "or", "to", "-".
        has_months: whether each day has its month.
    """

    span: Span
    days: tuple[Date, ...]
    links: tuple[str, ...]
    has_months: bool = False

    def in_german(self, *, has_months: bool) -> str:
        """The list as German writes it: 1. und 2. Mai; 1. Mai und 2. Mai, if each has its month."""
        written = ""
        for day, link in itertools.zip_longest(self.days, self.links):
            is_last = link is None
            written += day.written("de") if has_months or is_last else f"{day.day}."
            if not is_last:
                written += " – " if link == "-" and has_months else _GERMAN_LINKS[link]
        return written


def date_lists(text: str) -> Iterator[DateList]:
    """The lists of an English sentence: days of one month, or two dates side by side.

    Days are left out that may count something, as in "May 1 and 20 people".
    """
    before: DateList | None = None
    for name in date_names(text, "en"):
        if not is_month(name.number) or not all(is_day(text, name, day, "en") for day in name.days):
            continue
        days = sorted(name.days, key=lambda day: day.span)
        dates = tuple(Date(name.number, day.day) for day in days)
        between = [
            _LINK.fullmatch(text, day.span.end, after.span.start)
            for day, after in itertools.pairwise(days)
        ]
        if not days or not all(between):
            continue
        links = tuple(_name_of(link) for link in between if link)
        found = DateList(Span(days[0].span.start, days[-1].span.end), dates, links)
        is_clear = _is_clear(text, found, is_behind=days[-1].is_behind)
        if links and is_clear and _is_closed(links):
            yield found
        link = before and _LINK.fullmatch(text, before.span.end, found.span.start)
        if before and link and not links and not before.links and is_clear:
            span, both = Span(before.span.start, found.span.end), before.days + dates
            if _is_closed((_name_of(link),)):
                yield DateList(span, both, (_name_of(link),), has_months=True)
        before = found


def _is_clear(text: str, dates: DateList, *, is_behind: bool) -> bool:
    """Whether the days of a list count nothing, and the month is no verb."""
    if is_behind:
        return _BEHIND_DAY.match(text, dates.span.end) is not None
    is_verb = names_of("en")[dates.days[0].number] in VERBS and bool(dates.links)
    return not is_verb or search_before(_BEFORE_DAYS, text, dates.span) is not None


def list_edits(source: str, text: str) -> Iterator[Edit]:
    """The edits that write the lists of days of an English sentence in German.

    Args:
        source: the sentence. Lists behind its eighth stay as they are.
        text: its German translation.
    """
    taken: list[Span] = []
    found = list(itertools.islice(date_lists(source), _MOST_LISTS))
    for each in sorted(found, key=lambda each: -len(each.days)):
        for span in _places(each, text):
            if not any(overlap(span, other) for other in taken):
                taken.append(span)
                forms = [each.in_german(has_months=has) for has in (False, True)]
                right = forms if len({day.number for day in each.days}) == 1 else forms[1:]
                if text[slice(*span)] not in right:
                    yield Edit(span, forms[each.has_months])
                break


def _name_of(link: re.Match[str]) -> str:
    return link[1].replace("–", "-")


def _is_closed(links: tuple[str, ...]) -> bool:
    """Whether a list ends as one does: 3, 10 and 17; 3-5."""
    return links[-1] != "," and all(link == "," for link in links[:-1])


def _places(dates: DateList, text: str) -> Iterator[Span]:
    """The places in a German translation that have just the days and months of a list."""
    months = {names_of("de")[day.number] for day in dates.days}
    numbers = [rf"(?<!\d)(?<!\d[.,:/–-]){day.day}(?!\d)" for day in dates.days]
    for match in re.finditer(r"(\D{1,24})".join(numbers), text):
        tail = _TAIL.match(text, match.end())
        if tail is None or not all(_GAP.fullmatch(gap) for gap in match.groups()):
            continue
        head = search_before(_HEAD, text, Span(*match.span()))
        span = Span(head.start() if head else match.start(), tail.end())
        written = re.findall(_MONTHS, text[slice(*span)])
        if set(written) == months and len(written) <= (len(dates.days) if dates.has_months else 1):
            yield span

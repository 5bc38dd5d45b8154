"""The terms of a glossary in a translation: their letter case, and how often they are used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from service.glossaries.glossary import TermMatch
from service.things.edits import Edit
from service.things.placing import edited
from service.things.wanted import Candidate, Needs, paired
from service.translation.blank_retries import has_word


def in_cases(candidate: Candidate, matches: Sequence[TermMatch], terms: Needs) -> Candidate:
    """Give each translation of a term its letter case, where the sentence has it in several.

    A model writes all as the first one.

    Args:
        candidate: the translation.
        matches: the terms of the sentence.
        terms: the needs of these terms.
    """
    by_term: dict[str, list[TermMatch]] = {}
    for match in matches:
        by_term.setdefault(match.entry.source, []).append(match)
    several = {
        source: same for source, same in by_term.items() if len({match.form for match in same}) > 1
    }
    if not several:
        return candidate
    found, edits = terms.found(candidate), []
    for source, same in several.items():
        for match, there in paired(same, found[source], candidate):
            written = candidate.text[there.start : there.end]
            opens = not has_word(candidate.text[: there.start])
            if (changed := match.in_case(written, opens=opens)) != written:
                edits.append(Edit(there, changed))
    return edited(candidate, edits)


def used(candidate: Candidate, matches: Sequence[TermMatch], terms: Needs) -> dict[str, int]:
    """The number of times that a candidate uses each term, at most its number in the sentence.

    The keys are the terms as in the glossary.

    Args:
        candidate: the translation.
        matches: the terms of the sentence.
        terms: the needs of these terms.
    """
    found = terms.found(candidate)
    counts = Counter(match.entry.source for match in matches)
    return {source: min(count, len(found[source])) for source, count in counts.items()}

"""Checks of texts that have no things."""

from __future__ import annotations

from dataclasses import replace

from service.common.fairness import checkpoint, in_thread
from service.things.carrying import invented_privates
from service.things.checks import UNKNOWN, added, different_signs, is_plausible
from service.things.edits import Edit, EditedText
from service.things.placing import edited
from service.things.runs import surplus_run
from service.things.scanned import TermRules
from service.things.wanted import Candidate
from service.translation.results import (
    MAX_SHOWN,
    TextResult,
    TranslationWarning,
    WarningKind,
)

# Texts with this many characters are looked at within some milliseconds.
_SMALL_CHARACTERS = 1000


async def with_warnings(source: str, result: TextResult, rules: TermRules) -> TextResult:
    """The result of a text in which no sentence needs care, with warnings.

    Private characters that the model invented are left out.
    """
    spans = invented_privates(result.text, source)
    if spans:
        candidate = edited(Candidate(result.text, result.links), [Edit(s, "") for s in spans])
        result = replace(result, text=candidate.text, links=candidate.links)
    if not rules.kinds or result.error is not None:
        return result
    if len(result.text) <= _SMALL_CHARACTERS:
        await checkpoint()
        found = _looked_at(source, result.text, rules)
    else:
        found = await in_thread(lambda: _looked_at(source, result.text, rules))
    if spans:
        found.append(TranslationWarning(WarningKind.SIGNS, "", source[:MAX_SHOWN]))
    return replace(result, warnings=[*result.warnings, *found]) if found else result


def without_privates(delta: str, source: str) -> str:
    """A delta of a stream without private characters that the model invented."""
    return EditedText(delta, [Edit(s, "") for s in invented_privates(delta, source)]).text


def _looked_at(source: str, text: str, rules: TermRules) -> list[TranslationWarning]:
    found = []
    if UNKNOWN in text and UNKNOWN not in source:
        found.append(TranslationWarning(WarningKind.CHARACTER, UNKNOWN, source[:MAX_SHOWN]))
    for line, translated in _lines(source, text):
        if (run := surplus_run(line, translated)) is not None:
            shown = translated[slice(*run)][:MAX_SHOWN]
            found.append(TranslationWarning(WarningKind.REPETITION, shown, line[:MAX_SHOWN]))
        if invented := added(line, translated, (rules.source, rules.target)):
            found.append(TranslationWarning(WarningKind.ADDED, invented[0], line[:MAX_SHOWN]))
        if signs := different_signs(line, translated):
            found.append(TranslationWarning(WarningKind.SIGNS, signs, line[:MAX_SHOWN]))
        if not is_plausible(line, translated):
            found.append(TranslationWarning(WarningKind.LENGTH, "", line[:MAX_SHOWN]))
    return found


def _lines(source: str, text: str) -> list[tuple[str, str]]:
    """Lines with their translations; the whole texts if their numbers of lines differ."""
    sources, texts = source.splitlines(), text.splitlines()
    if len(sources) != len(texts):
        return [(source, text)]
    return list(zip(sources, texts, strict=True))

"""Dates in sentences, for samples: independent of what the server reads."""

from __future__ import annotations

import random

_DAYS = {
    "en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "de": "Montag Dienstag Mittwoch Donnerstag Freitag (?:Samstag|Sonnabend) Sonntag",
    "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche",
}
_MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
}
_ENGLISH = r"(?:{day}(?:st|nd|rd|th)?(?: of)? {month}|{month} (?:the )?{day}(?:st|nd|rd|th)?)"
_DATES = {
    "en": _ENGLISH,
    "de": r"{day}\. {month}",
    "fr": r"(?:{day}|{day}er|premier) {month}",
}


def date_sample(rng: random.Random, source: str, target: str) -> tuple[str, str]:
    """A day of the week or of a month after "on" or "am", and a pattern of its translation.

    Args:
        source: language of the sentence, "en" or "de".
        target: language of the translation. In languages without a table, only digits are looked
            for, and any translation of a day of the week is right.
    """
    if rng.random() < 0.3:
        index = rng.choice([0, 1, 2, 3, 4, 6])
        named = rf"(?i:{_DAYS[target].split()[index]})" if target in _DAYS else r"\A"
        return _DAYS[source].split()[index], named
    index, day = rng.randrange(12), rng.randrange(1, 32)
    month = _MONTHS[source].split()[index]
    ending = "th" if 10 < day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    forms = {
        "en": [f"{month} {day}", f"{day} {month}", f"the {day}{ending} of {month}"],
        "de": [f"{day}. {month}"],
    }
    text = rng.choice(forms[source])
    if target not in _MONTHS:
        return text, rf"(?<!\d){day}(?!\d)"
    there = _DATES[target].format(day=day, month=_MONTHS[target].split()[index])
    return text, rf"(?i:(?<![\d\w]){there}(?![\d\w]))"

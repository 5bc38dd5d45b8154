"""The forms that things may have in translations: unchanged, or by rules of the target language."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from model.bundle.languages import primary_subtag
from service.things import date_scan, dates, number_forms, number_reader, numbers_in_words, times
from service.things.dates import Date
from service.things.number_reader import Number
from service.things.things import Form, Thing

_SPACES = (" ", "\u00a0", "\u202f", "")
_NUMBER = re.compile(r"\d++(?:[.,'’\u00a0\u202f]\d++)*+")
# An amount: its minus, currency, number or range, dash for no cents, and what stands behind.
_AMOUNT_PARTS = ("minus", "before", "number", "dash", "after")
_AMOUNT = re.compile(
    r"(?P<minus>[-−+])?(?P<before>\D+?)?\s?"
    r"(?P<number>\d++(?:[.,'’\u00a0\u202f]\d++)*+(?:[-–]\d++(?:[.,'’]\d++)*+)?)"
    r"(?P<dash>[.,][-–—]{1,2})?\s?(?P<after>\D*)"
)
_DASH = re.compile(r"[.,][-–—]{1,2}(?!\d)")
_DAYS = re.compile(r"(\d{1,2})([-–/])(\d{1,2})")  # of a month: 5-9
_MINUSES = ("-", "−", "–", "minus ", "Minus ")
_NUMERO = re.compile(r"(?:nos?\.?:?|№)\s?", re.IGNORECASE)
_LANGUAGES_OF_NUMERO = {
    "de": ("Nr. {}", "Nummer {}", "Nr.\u00a0{}", "Nrn. {}"),
    "fr": ("n° {}", "numéro {}", "nº {}", "no {}"),
    "es": ("n.º {}", "número {}", "núm. {}", "nº {}", "n.° {}"),
    "it": ("n. {}", "numero {}", "n° {}", "nº {}"),
    "nl": ("nr. {}", "nummer {}", "Nr. {}"),
    "pt": ("n.º {}", "número {}", "nº {}"),
}
# Words for a sign or a code, after the number.
_SAID = {
    "de": {
        "$": "Dollar|US-Dollar",
        "€": "Euro",
        "£": "Pfund",
        "¥": "Yen",
        "₹": "Rupien",
        "₽": "Rubel",
        "USD": "US-Dollar|Dollar|$|US$",
        "EUR": "Euro|€",
        "GBP": "Pfund|£",
        "CHF": "Franken|Schweizer Franken",
        "JPY": "Yen|¥",
        "%": "Prozent",
        "°C": "Grad Celsius|Grad C",
        "°F": "Grad Fahrenheit",
        "°": "Grad",
        "L": "Liter|Litern",
        "V": "Volt",
        "W": "Watt",
        "dB": "Dezibel",
        "ha": "Hektar",
        "bar": "Bar",
        "kcal": "Kilokalorien",
        "km/h": "Kilometer pro Stunde|Stundenkilometer",
        "km": "Kilometer|Kilometern",
        "m": "Meter|Metern",
        "cm": "Zentimeter|Zentimetern",
        "mm": "Millimeter|Millimetern",
        "m²": "Quadratmeter|Quadratmetern",
        "km²": "Quadratkilometer|Quadratkilometern",
        "m³": "Kubikmeter|Kubikmetern",
        "kg": "Kilogramm|Kilo",
        "g": "Gramm",
        "mg": "Milligramm",
        "l": "Liter|Litern",
        "ml": "Milliliter|Millilitern",
        "ft": "Fuß",
        "lb": "Pfund",
        "lbs": "Pfund",
        "oz": "Unzen",
        "mph": "Meilen pro Stunde",
        "min": "Minuten",
        "sec": "Sekunden|s|Sek.",
        "h": "Stunden|Std.",
        "hrs": "Stunden|Std.|h",
        "hr": "Stunde|Stunden|Std.|h",
        "s": "Sekunden",
        "GB": "Gigabyte",
        "MB": "Megabyte",
        "TB": "Terabyte",
        "px": "Pixel|Pixeln",
        "¢": "Cent",
    },
}
_THOUSAND, _MILLION, _BILLION = " Tausend| Tsd.", " Millionen| Mio.", " Milliarden| Mrd."
_SCALES = {
    "de": {
        **dict.fromkeys("kK", _THOUSAND),
        **dict.fromkeys("mM", _MILLION),
        **dict.fromkeys(("bn", "B"), _BILLION),
    }
}
_BIG = {
    "de": (" Millionen", " Million", " Mio.", " Milliarden", " Milliarde", " Mrd.", " Billionen")
}
_GERMAN = "nullt erst zweit dritt viert fünft sechst siebt acht neunt zehnt elft zwölft"
_ORDINALS = {"de": _GERMAN.split()}
_TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
_ENDINGS = ("e", "en", "er", "es", "em")


@dataclass(frozen=True)
class ThingForms:
    """The forms that a thing may have in a translation.

    Attributes:
        right: correct forms; the first is the one to put into a translation.
        wrong: forms that models write by mistake; they are replaced by the first correct form.
        is_exact: whether the translation must have the thing exactly as often as the sentence.
        given: the string that the model reads instead of the thing; None for the thing itself, or
            a stand-in.
        better: better forms by correct ones, such as "16:00 Uhr" by "16:00".
        said: the number or date that a translation may have in its own words, too.
        other: the string that the model reads if its translation lacks the thing.
    """

    right: tuple[str, ...]
    wrong: tuple[str, ...] = ()
    is_exact: bool = True
    given: str | None = None
    better: Mapping[str, str] = field(default_factory=dict)
    said: Number | Date | None = None
    other: str | None = None


def forms_of(thing: Thing, source: str, target: str) -> ThingForms:
    """The forms of a thing.

    Args:
        thing: a thing of a sentence.
        source: BCP-47 code of the sentence.
        target: BCP-47 code of the translation.
    """
    text, language = thing.text, primary_subtag(target)
    if thing.form is Form.TIME:
        return _time(text, target)
    if thing.form is Form.NUMERO:
        return _numero(text, source, language)
    if thing.form is Form.AMOUNT:
        right = _amount(text, source, target, language)
        dash = _DASH.search(text)
        if dash is None:
            return ThingForms(right, is_exact=False)
        # The model takes the dash for one of the sentence.
        given = text.replace(dash[0], "")
        wrong = _amount(given, source, target, language)
        return ThingForms(right, wrong, is_exact=False, given=given)
    if thing.form is Form.UNIT:
        right = _unit(text, source, target, language)
        space = re.search(r"(?<=\d)\s", text)
        better = _with_space(right, space[0]) if space and language == "de" else {}
        return ThingForms(right, is_exact=False, better=better)
    if thing.form is Form.ORDINAL:
        return _converted(_ordinal(text[:-2], text, language), text)
    if thing.form is Form.DECADE:
        if any(map(str.isdigit, text)):
            return _converted(_decade(text, language), text)
        digits = numbers_in_words.decade_of(text)
        return replace(_converted(_decade(digits, language), digits), given=digits)
    if thing.form is Form.AGE:
        digits = numbers_in_words.decade_of(text)
        return ThingForms(_age(digits), (digits,), is_exact=False, other=digits)
    if thing.form is Form.NUMBER_IN_WORDS:
        number = numbers_in_words.number_said(text, source)
        assert number is not None, "it is a number in words"
        return _number_in_words(number, source, target)
    if thing.form in (Form.DATE, Form.DAY_NAME):
        return _date(text, source, target)
    if thing.form is Form.NUMBER:
        return _number(text, source, target)
    if thing.form is Form.LATIN:  # Škoda, Škodas
        return ThingForms((text, text + "s"))
    return ThingForms((text,), is_exact=thing.form is not Form.ACRONYM)


def _numero(text: str, source: str, language: str) -> ThingForms:
    number = _NUMERO.sub("", text)
    said = [form.format(number) for form in _LANGUAGES_OF_NUMERO.get(language, ())]
    if language == "de" and text.startswith("NO"):
        said.append(f"NUMMER {number}")
    mark = ":" if ":" in text else ""
    if mark:
        with_mark = [form[: -len(number)].rstrip() + f": {number}" for form in said]
        said = [*with_mark, *said]
    given = f"{'N' if text[0].isupper() else 'n'}umber{mark} {number}"
    return ThingForms(
        (*said, text), is_exact=False, given=given if said and source[:2] == "en" else None
    )


def _converted(right: tuple[str, ...], text: str) -> ThingForms:
    """Forms for a thing that is converted. The thing itself is wrong unless it is among `right`."""
    wrong = () if text in right else (text,)
    return ThingForms(right, wrong, is_exact=False)


def _time(text: str, target: str) -> ThingForms:
    parsed = times.parsed(text)
    if parsed is None and "clock" in text:
        number = text.split()[0]
        if target[:2].lower() != "de":
            return ThingForms((number, text), is_exact=False)
        return ThingForms(
            (f"{number} Uhr", *_spelled(number, target, " Uhr"), text), is_exact=False
        )
    if parsed is None or not times.is_converted(text, target):
        return ThingForms((text,))
    wrong = times.other_hours(parsed.times[0], target) if len(parsed.times) == 1 else ()
    right = (*parsed.forms(target), text)
    return ThingForms(
        right,
        tuple(form for form in wrong if form not in right),
        False,
        parsed.given(target),
        parsed.better(target),
    )


def _spelled(number: str, target: str, after: str) -> list[str]:
    return [word + after for word in number_forms.words(number, target)]


def _number(text: str, source: str, target: str) -> ThingForms:
    sign = text[0] if not text[0].isdigit() else ""
    number = text[len(sign) :]
    written = number_forms.forms(number, source, target)
    if primary_subtag(target) == "de" and (days := _DAYS.fullmatch(number)):
        first, last = f"{days[1]}.", f"{days[3]}."
        links = (" und ",) if days[2] == "/" else ("–", "-", " – ", " - ", " bis ", " bis zum ")
        written = (*written, *(first + link + last for link in links))
    if sign:
        signs = _MINUSES if sign in "-−" else (sign,)
        return ThingForms(
            tuple(dict.fromkeys(s + form for s in (sign, *signs) for form in written)),
            is_exact=False,
        )
    words = number_forms.words(number, target)
    spelled = [form for word in words for form in (word, word.capitalize())]
    wrong = (number,) if written[0] != number else ()
    return ThingForms((*written, *spelled), wrong, is_exact=False)


def _number_in_words(number: Number, source: str, target: str) -> ThingForms:
    """Forms in digits; the words of the target language are read by `Needs`."""
    digits, language = number.digits, primary_subtag(target)
    if number.is_ordinal:
        forms = _ordinal(digits[:-2], digits, language)
    else:
        forms = _number(digits, "en", target).right
        if "." in digits and forms[0] == digits and number_forms.uses_point(target) is False:
            forms = tuple(sorted(forms, key=lambda form: "." in form))
    read = number.given(source)
    is_read_first = number.is_simple and number_reader.are_read_in(target)
    given = None if is_read_first else read
    return ThingForms(forms, is_exact=False, given=given, said=number, other=read)


def _date(text: str, source: str, target: str) -> ThingForms:
    plain, is_middle = date_scan.without_middle(text)
    date = dates.date_of(plain, source)
    assert date is not None, "it is a date"
    if not dates.are_read_in(target):
        return _number(str(date.day), source, target)
    if is_middle and primary_subtag(target) == "de":
        name = date.written(target)
        right = (f"Mitte {name}", f"Mitte des {name}", f"Mitte des {name}s")
        return ThingForms(right, is_exact=False, given=date_scan.read_as(date, text, source))
    return ThingForms(
        (date.written(target),),
        is_exact=False,
        given=date_scan.read_as(date, text, source),
        said=date,
        other=date_scan.in_other_words(date, text, source),
    )


def _written(number: str, source: str, target: str) -> tuple[str, ...]:
    return number_forms.forms(number, source, target)


def _amount(text: str, source: str, target: str, language: str) -> tuple[str, ...]:
    match = _AMOUNT.fullmatch(text)
    assert match is not None, "it is an amount"
    minus, before, number, dash, after = (match[name] or "" for name in _AMOUNT_PARTS)
    sign, scale = (before, after) if before else (after, "")
    numbers = [_ranged(n) for n in _written(number, source, target)]
    said = _SAID.get(language, {}).get(sign[-1:] if sign[-1:] in "$£" and sign != "$" else sign, "")
    names = [sign, *said.split("|")] if said else [sign]
    if sign[-1:] == "$" and sign != "$" and language == "de":
        names = [sign, f"{sign[:-1]}-Dollar"]
    scales = [scale, *filter(None, _SCALES.get(language, {}).get(scale, "").split("|"))]
    if not scale:
        scales = [dash] if dash else ["", *_BIG.get(language, ())]
    minuses = _MINUSES if minus and minus in "-−" else (minus,)
    found = [text.replace(number, numbers[0][0])]
    for written in itertools.chain.from_iterable(numbers):
        for scaled in scales:
            amount = written + scaled
            plain = [sign + space + amount for space in _SPACES] if sign else [amount]
            plain += [amount + space + name for name in names for space in _SPACES if name]
            found += [m + form for form in plain for m in minuses]
            if minus:
                found += [sign + m + amount for m in minuses]
    return tuple(dict.fromkeys(found))


def _ranged(number: str) -> tuple[str, ...]:
    """Forms of a range of numbers; a single number as it is."""
    for mark in "-–":
        if mark in number:
            return tuple(number.replace(mark, other) for other in ("-", "–", " bis ", " – "))
    return (number,)


def _unit(text: str, source: str, target: str, language: str) -> tuple[str, ...]:
    match = _NUMBER.search(text)
    assert match is not None, "it has a number"
    sign, unit = text[: match.start()], text[match.end() :].strip()
    numbers = _written(match.group(), source, target)
    said = _SAID.get(language, {}).get(unit, "")
    names = [unit, *said.split("|")] if said else [unit]
    signs = _MINUSES if sign and sign in "-−" else (sign,)
    found = [text.replace(match.group(), numbers[0])]
    spelled = number_forms.words(match.group(), target)
    for number in (*numbers, *spelled, *(word.capitalize() for word in spelled)):
        spaces = (*_SPACES, "-")  # 100-Meter-Lauf
        found += [s + number + space + name for s in signs for name in names for space in spaces]
    return tuple(dict.fromkeys(found))


def _with_space(forms: Sequence[str], space: str) -> dict[str, str]:
    """The form with a space for each that has a number and a unit without one: 5l, 5 l."""
    apart = ((form, re.sub(r"(?<=\d)(?=[^\W\d_]|[%°])", " ", form)) for form in forms)
    return {form: put.replace(" ", space) for form, put in apart if put != form and put in forms}


def _ordinal(number: str, text: str, language: str) -> tuple[str, ...]:
    if language != "de":
        return (number, text) if language != "en" else (text, number)
    stems = _ORDINALS["de"]
    found = [f"{number}.", number]
    if len(number) < 3 and int(number) < len(stems):
        stem = stems[int(number)]
        if stem == "siebt":
            found += ["siebente", "siebenten", "siebenter", "siebentes"]
        found += [form + end for form in (stem, stem.capitalize()) for end in _ENDINGS]
    return tuple(found)


def _decade(text: str, language: str) -> tuple[str, ...]:
    digits = re.sub(r"\D", "", text)
    if language != "de":
        return (text, digits)
    short = digits[-2:]
    ends = ("er", "ern", "erjahre", "erjahren")
    found = [number + end for number in dict.fromkeys((digits, short)) for end in ends]
    if short[0] in "23456789":
        said = _TENS[int(short[0]) - 2]
        found += [form + end for form in (said, said.capitalize()) for end in ends]
    return tuple(found)


def _age(digits: str) -> tuple[str, ...]:
    """German forms of an age such as "40s": in her forties, "Mitte vierzig"."""
    short = digits[:2]
    said = _TENS[int(short[0]) - 2]
    words = (said, said.capitalize())
    return (
        *(short + end for end in ("ern", "er", "")),
        *(w + e for w in words for e in ("ern", "er", "")),
    )

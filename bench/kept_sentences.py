"""Sentences with things that a translation must keep, and what is right for each.

The right forms are repeated here instead of imported, so that a mistake in the server is found.
"""
# ruff: noqa: E501 - the samples are easier to read in one line each

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.date_words import date_sample
from bench.number_words import in_english, in_german
from export.carrier_sentences import TEMPLATES
from model.bundle.languages import primary_subtag

_CARRIERS = re.compile(
    r"\{\d\}|(?<![\w%])%\d\b|\b(?:XX|ID|AX)\d\b|\bX\dX\b|<x\d>|\#\d\#|[\ue000-\uf8ff]", re.VERBOSE
)


@dataclass(frozen=True)
class Pair:
    """The languages of sentences and of their translations, without regions."""

    source: str = "en"
    target: str = "de"

    @classmethod
    def of(cls, source: str, target: str) -> Pair:
        """The direction between two BCP-47 codes."""
        return cls(primary_subtag(source), primary_subtag(target))


ENGLISH_GERMAN = Pair()


@dataclass(frozen=True)
class SampleThing:
    """A thing, and a pattern of what is right for it in a translation.

    Attributes:
        kind: a row of the table.
        text: its text in the sentence.
        pattern: found exactly once in a right translation.
    """

    kind: str
    text: str
    pattern: str


@dataclass(frozen=True)
class SampleSentence:
    """A sentence with some things."""

    text: str
    things: Sequence[SampleThing]

    def is_right(self, translation: str) -> bool:
        """Whether a translation has each thing as often as the sentence, and no stand-ins."""
        if "\ufffd" in translation or len(translation) > 3 * len(self.text) + 40:
            return False
        for thing in self.things:
            wanted = sum(other.text == thing.text for other in self.things)
            if len(re.findall(thing.pattern, translation)) != wanted:
                return False
        remains = _CARRIERS.findall(translation)
        return all(each in self.text for each in remains)


LANGUAGES = tuple(TEMPLATES)
"""Source languages that there are sentences for."""
# English ones: in other languages, these kinds have the sentences of all others, or none.
_AT = {
    "time": ["We meet at {}.", "The bus comes at {} every day.", "At {} the shop was closed.",
             "My train leaves at {} tomorrow.", "The film begins at {}, I think."],
    "range of times": ["The shop is open from {}.", "He works from {} every day."],
    "amount": ["He paid {} for it.", "It costs {} today.", "{} is too much for this car.", "I have {}."],
    "number in words": ["There are {} people in the hall.", "She counted {} stars.", "The book has {} pages.",
                        "We need {} chairs today."],
    "date": ["We met on {}.", "The shop is closed on {}.", "On {} we went home.", "My flight is on {}, I think."],
    "time in words": ["The train leaves at {}.", "We meet at {} tomorrow.", "He was here before {}."],
    "quotes": ["He said {} and left.", "The sign says {}.", "{} is what she said."],
    "ordinal": ["It is the {} house on the left.", "This is my {} visit to Rome."],
    "numero": ["{} is alive.", "Track {} is good.", "I live in house {}."],
    "unit": ["The room has {}.", "It is {} from here to the river.", "They need {} for it."],
}  # fmt: skip


_AT_GERMAN = {
    "number in words": ["Im Saal waren {} Leute.", "Das Buch hat {} Seiten.", "Wir brauchen heute {} Stühle."],
    "date": ["Wir treffen uns am {}.", "Am {} war der Laden zu.", "Mein Flug ist am {}."],
    "time in words": ["Der Zug fährt um {} ab.", "Wir treffen uns morgen um {}.", "Er war bis {} hier."],
}  # fmt: skip


def _exact(text: str) -> str:
    before = r"(?<!\w)" if text[0].isalnum() or text[0] == "_" else ""
    after = r"(?!\w)" if text[-1].isalnum() or text[-1] == "_" else ""
    return before + re.escape(text) + after


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choice("0123456789") for _ in range(count))


def _letters(rng: random.Random, count: int, of: str = "ABCDEFGHIJKLMNPRSTUVWXYZ") -> str:
    return "".join(rng.choice(of) for _ in range(count))


def _number(rng: random.Random, pair: Pair) -> tuple[str, str]:
    choice = rng.randrange(5)
    if choice == 0:
        number = str(rng.randrange(13, 2030))
    elif choice == 1:
        whole, rest = rng.randrange(1, 999), rng.randrange(1000)
        mark, others = (",", ".,") if pair.source == "en" else (".", ".,")
        if (pair.source == "en") is not (pair.target == "en"):
            others = "." if mark == "," else ","
        number = f"{whole}{mark}{rest:03}"
        return number, rf"(?<![\d.,]){whole}[{others} \u00a0\u202f']?{rest:03}(?![\d.,]\d)"
    elif choice == 2:
        mark = "." if pair.source == "en" else ","
        number = f"{rng.randrange(1, 99)}{mark}{rng.randrange(1, 99)}"
    elif choice == 3:
        number = f"{rng.randrange(1, 29):02}/{rng.randrange(1, 13):02}/{rng.randrange(1990, 2030)}"
    else:
        number = f"{rng.randrange(0, 24)}:{rng.randrange(0, 60):02}"
    wanted = re.sub(r"\\\.|,", "[.,]", re.escape(number)).replace("/", "[/.]").replace(":", "[:.]")
    return number, rf"(?<!\d)(?<!\d[.,:/]){wanted}(?!\d|[.,:/]\d)"


# After a whole hour, and between hour and minute, in languages with a word for it.
_HOURS = {"de": " Uhr", "fr": "[ \u00a0]?h", "nl": " uur"}
_UNTIL = {"de": "bis", "fr": "à", "nl": "tot"}


def _clock(hour: int, minute: int, target: str) -> str:
    word = _HOURS.get(target, "")
    said = rf"0?{hour}[:.]{minute:02}(?:{word})?"
    if target == "fr":
        said = rf"(?:{said}|{hour}{word}[ \u00a0]?{minute:02})"
    return rf"(?:{said}|0?{hour}{word})" if minute == 0 and word else said


def _time(rng: random.Random, pair: Pair) -> tuple[str, str]:
    hour, minute = rng.randrange(1, 13), rng.choice([0, 0, 15, 30, 45, rng.randrange(60)])
    half = rng.choice(["am", "pm", "a.m.", "p.m.", "a. m.", "AM", "PM"])
    text = f"{hour}{f':{minute:02}' if minute else ''}{rng.choice([' ', ' ', ''])}{half}"
    there = hour % 12 + (12 if half[0] in "pP" else 0)
    pattern = rf"(?<!\d)(?<!\d[.:])(?:{_clock(there, minute, pair.target)}|{re.escape(text.rstrip('.'))})(?!\d)"
    if half[0] == "p" and minute == 0 and pair.target == "de":
        pattern += rf"|(?<!\d){hour} Uhr (?:nachmittags|abends|am Nachmittag|am Abend)"
    return text, pattern


def _times(rng: random.Random, pair: Pair) -> tuple[str, str]:
    first, second = sorted(rng.sample(range(1, 12), 2))
    half = rng.choice(["am", "pm"])
    more = 12 if half == "pm" else 0
    text = f"{first} {rng.choice(['to', 'to', 'until'])} {second} {half}"
    word = _HOURS.get(pair.target, "")
    one, two = (_clock(hour + more, 0, pair.target) for hour in (first, second))
    one = one.replace(word, f"(?:{word})?") if word else one
    if pair.target not in _HOURS:
        return text, re.escape(text)
    return text, rf"(?<!\d){one} {_UNTIL[pair.target]} {two}"


def _amount(rng: random.Random, pair: Pair) -> tuple[str, str]:
    number = rng.choice(
        [str(rng.randrange(1, 900)), f"{rng.randrange(1, 99)}.{rng.randrange(10, 99)}"]
    )
    wanted = re.escape(number).replace(r"\.", "[.,]")
    sign, said = rng.choice(
        [("$", "Dollar|US-Dollar"), ("€", "Euro"), ("£", "Pfund"), ("¥", "Yen"), ("USD", r"US-Dollar|Dollar|\$"),
         ("CHF", "Franken|Schweizer Franken"), ("EUR", "Euro|€")]
    )  # fmt: skip
    text = (
        f"{sign}{number}"
        if len(sign) == 1
        else rng.choice([f"{sign} {number}", f"{number} {sign}"])
    )
    name = rf"(?:{re.escape(sign)}|{said})" if pair.target == "de" else re.escape(sign)
    space = "[ \u00a0]?"
    return text, rf"(?<![\d.,])(?:{name}{space}{wanted}|{wanted}{space}{name})(?!\d)"


def _unit(rng: random.Random, pair: Pair) -> tuple[str, str]:
    number = rng.randrange(2, 900)
    unit, said = rng.choice(
        [("km", "Kilometern?"), ("kg", "Kilogramm"), ("m²", "Quadratmetern?"), ("%", "Prozent"), ("°C", "Grad Celsius"),
         ("km/h", "Kilometer pro Stunde"), ("cm", "Zentimetern?"), ("GB", "Gigabyte"), ("m³", "Kubikmetern?")]
    )  # fmt: skip
    text = f"{number}{rng.choice(['', ' '])}{unit}"
    names = f"{re.escape(unit)}|{said}" if pair.target == "de" else re.escape(unit)
    return text, rf"(?<!\d){number}[ \u00a0]?(?:{names})(?!\w)"


def _ordinal(rng: random.Random, pair: Pair) -> tuple[str, str]:
    number = rng.randrange(13, 99)
    tail = "th" if 10 < number % 100 < 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{tail}", rf"(?<!\d){number}(?:\.|{tail})?(?!\w)"


def _number_in_words(rng: random.Random, pair: Pair) -> tuple[str, str]:
    number = rng.choice(
        [
            rng.randrange(3, 13),
            rng.randrange(13, 100),
            rng.randrange(100, 1000),
            rng.randrange(1000, 10**6),
        ]
    )
    say = {"en": in_english, "de": in_german}
    text, said = (say.get(language, str)(number) for language in (pair.source, pair.target))
    words = said.replace("einhundert", "(?:ein)?hundert").replace("eintausend", "(?:ein)?tausend")
    words = words.replace("one hundred", "(?:one|a) hundred").replace(" and ", " (?:and )?")
    digits = f"{number:,}".replace(",", "[., \u00a0\u202f]?")
    return text, rf"(?i:(?<![\d.,\w])(?:{digits}|{words})(?![\d\w]))"


def _time_in_words(rng: random.Random, pair: Pair) -> tuple[str, str]:
    hour = rng.randrange(1, 13)
    said, before = (in_english if pair.source == "en" else in_german)(hour), hour - 1 or 12
    times = {
        "en": [(f"half past {said}", hour, 30), (f"a quarter past {said}", hour, 15), (f"quarter to {said}", before, 45),
               (f"ten past {said}", hour, 10), (f"ten to {said}", before, 50), (f"twenty-five to {said}", before, 35),
               (f"{said} thirty", hour, 30), (f"{said} forty-five", hour, 45), (f"{said} fifteen", hour, 15)],
        "de": [(f"halb {said}", before, 30), (f"Viertel nach {said}", hour, 15), (f"Viertel vor {said}", before, 45),
               (f"zehn nach {said}", hour, 10), (f"zehn vor {said}", before, 50), (f"fünf vor halb {said}", before, 25)],
    }  # fmt: skip
    text, there, minute = rng.choice(times[pair.source])
    return text, rf"(?<!\d)(?<!\d[.:]){_clock(there, minute, pair.target)}(?!\d)"


def _quotes(rng: random.Random, pair: Pair) -> tuple[str, str]:
    said = rng.choice(
        ["I am tired", "the dog is here", "no entry", "come home", "good night", "the red house"]
    )
    opening, closing = rng.choice(['""', "“”", ('\\"',) * 2, ("&quot;",) * 2, "‘’", "''"])
    if len(opening) > 1:
        mark = re.escape(opening)
        return f"{opening}{said}{closing}", rf"{mark}(?:(?!{mark}).){{3,}}{mark}"
    return f"{opening}{said}{closing}", '["„“»‚‘\'«‹›][^"“”„«»]{3,}?["“”«»‘’\'](?!\\w)'


Sampler = Callable[[random.Random, Pair], tuple[str, str]]


def _verbatim(make: Callable[[random.Random], str]) -> Sampler:
    def sample(rng: random.Random, _: Pair) -> tuple[str, str]:
        text = make(rng)
        return text, _exact(text)

    return sample


def _one_of(*texts: str) -> Sampler:
    return _verbatim(lambda rng: rng.choice(texts))


_NAMES = ["user", "file", "count", "order", "page", "city", "first", "last", "total", "label"]


def _joined(rng: random.Random, by: str) -> str:
    return by.join(rng.sample(_NAMES, 2))


KINDS: dict[str, Sampler] = {
    "number": _number,
    "time": _time,
    "range of times": _times,
    "amount": _amount,
    "unit": _unit,
    "ordinal": _ordinal,
    "number in words": _number_in_words,
    "time in words": _time_in_words,
    "date": lambda rng, pair: date_sample(rng, pair.source, pair.target),
    "numero": lambda rng, _: (
        f"{rng.choice(['No.', 'no.'])} {(number := rng.randrange(13, 400))}",
        rf"(?:Nr\.|Nummer|[Nn]o\.|№|n[°º]|numéro|número|n\.º|núm\.) {number}(?!\d)",
    ),
    "code": _verbatim(
        lambda rng: rng.choice(
            [
                _letters(rng, rng.randrange(1, 4)) + _digits(rng, rng.randrange(3, 12)),
                f"{_letters(rng, 3)}-{_digits(rng, 4)}",
                _digits(rng, 3) + _letters(rng, 2) + _digits(rng, 3),
                f"{_letters(rng, 2)}{_digits(rng, 2)}-{_letters(rng, 3)}{_digits(rng, 5)}",
            ]
        )
    ),
    "hash": _verbatim(lambda rng: "a1" + _letters(rng, rng.choice([6, 30, 38]), "0123456789abcdef")),
    "UUID": _verbatim(
        lambda rng: "-".join(_letters(rng, n, "0123456789abcdef") for n in (7, 4, 4, 4, 12)).join(["1", ""])
    ),
    "IBAN": _verbatim(lambda rng: f"DE{_digits(rng, 2)} " + " ".join(_digits(rng, 4) for _ in range(4))),
    "hashtag": _one_of("#travel", "#NoFilter", "#2024goals", "#dogs_of_rome", "#berlin"),
    "mention": _one_of("@tom", "@anna_b", "@news.desk", "@example_user"),
    "name in code": _verbatim(
        lambda rng: rng.choice(
            [_joined(rng, "_"), _joined(rng, "_").upper(), f"get{_joined(rng, '').title()}Name", "std::string", "os.path.join"]
        )
    ),
    "option": _one_of("--help", "--dry-run", "--port=80", "--no-cache"),
    "file": _verbatim(lambda rng: f"{rng.choice(_NAMES)}.{rng.choice(['py', 'txt', 'pdf', 'json', 'tar.gz', 'docx'])}"),
    "path": _verbatim(
        lambda rng: rng.choice([f"/etc/{rng.choice(_NAMES)}/x.conf", rf"C:\Users\{rng.choice(_NAMES)}\n.txt", "~/notes", "src/main/a.c"])
    ),
    "host": _verbatim(lambda rng: f"{rng.choice(['', 'docs.', 'www.'])}{rng.choice(_NAMES)}{rng.choice(['.com', '.org', '.de', '.io'])}"),
    "mail": _verbatim(lambda rng: f"{rng.choice(_NAMES)}@{rng.choice(_NAMES)}.com"),
    "URL": _verbatim(lambda rng: f"https://{rng.choice(_NAMES)}.org/{rng.choice(_NAMES)}?id={_digits(rng, 4)}"),
    "other script": _one_of(
        *("Киев", "Şişli", "ＡＢＣ", "〈春〉", "猫", "שלום", "Ἰλιάς", "東京", "مرحبا", "Αθήνα", "नमस्ते", "서울", "สวัสดี", "Москва", "ქართული", "π"),
        "Доброе утро",
    ),
    "sign": _one_of("½", "x²", "H₂O", "CO₂", "①", "≦", "5′11″", "20 µm", "¾", "10⁻⁶", "→", "∞", "©"),
    "emoji": _one_of("🎉", "👍🏽", "🐕", "❤️"),
    "shortcode": _one_of(":smile:", ":thumbs_up:", ":tada:", ":warning:"),
    "printf": _one_of("%s", "%d", "%1$s", "%(name)s", "%s%s", "%d%%", "%.2f", "%'d", "%s/%s", "%-10s"),
    "placeholder": _verbatim(
        lambda rng: rng.choice(["{%s}", "{{ %s }}", "${%s}", "{{{%s}}}", "%%{%s}", "__%s__", "{0:%s}", "<b id=%s>", "[%%%s%%]", ":%s"])
        % rng.choice(_NAMES)
    ),
    "placeholder with spaces": _one_of(
        *("{% if user.name %}", "{{ name | upper }}", "{0:dd MMM yyyy}", '{% include a.html b="Read this" %}', "<%= name %>"),
    ),
    "entity": _one_of("&amp;", "&nbsp;", "&#8217;", "&lt;", "&copy;"),
    "code in backticks": _one_of("`ls -l`", "`foo(bar)`", "`x = 1`"),
    "quotes": _quotes,
    "message": lambda rng, _: (
        f"{{{rng.choice(_NAMES)}, plural, one {{# dog}} other {{# dogs}}}}",
        r"\{\w+, plural, one \{# [^{}#]+\} other \{# [^{}#]+\}\}",
    ),
}  # fmt: skip
_ALONE = {"quotes", "range of times", "message"}
_GERMAN = {"number in words", "time in words", "date"}
_ENGLISH = {"time", "range of times", "ordinal", "numero", *_GERMAN, *_ALONE}


def kinds_for(pair: Pair) -> list[str]:
    """The kinds of things in the available sentences.

    Raises:
        ValueError: no sentences are in the source language.
    """
    if pair.source not in LANGUAGES:
        raise ValueError(
            f"there are sentences in {', '.join(LANGUAGES)}, but none in {pair.source}"
        )
    left_out = {"en": frozenset(), "de": _ENGLISH - _GERMAN}.get(pair.source, _ENGLISH)
    return [kind for kind in KINDS if kind not in left_out]


def sample_thing(kind: str, rng: random.Random, pair: Pair = ENGLISH_GERMAN) -> SampleThing:
    """A thing of a kind."""
    return SampleThing(kind, *KINDS[kind](rng, pair))


def sample_sentence(
    rng: random.Random, kind: str | None = None, pair: Pair = ENGLISH_GERMAN
) -> SampleSentence:
    """A sentence with one to three things; the first one is of the given kind."""
    first = kind or rng.choice(kinds_for(pair))
    templates: Sequence[str] = TEMPLATES[pair.source]
    kinds = [first]
    if first in (own := {"en": _AT, "de": _AT_GERMAN}.get(pair.source, {})):
        templates = own[first]
        if rng.random() < 0.3 and first not in _ALONE:
            kinds.append(_other(rng))
            templates = [f"{template[:-1]}, and I saw {{}}." for template in templates]
    elif first not in _ALONE:
        kinds += [_other(rng) for _ in range(rng.choice([0, 0, 1, 1, 2]))]
    templates = [template for template in templates if template.count("{}") == len(kinds)]
    things = [sample_thing(each, rng, pair) for each in kinds]
    template = rng.choice(templates)
    if template.endswith(".") and template.endswith("{}.") and things[-1].text.endswith("."):
        template = template[:-1]
    return SampleSentence(template.format(*(thing.text for thing in things)), things)


def _other(rng: random.Random) -> str:
    return rng.choice([kind for kind in KINDS if kind not in _AT and kind not in _ALONE])

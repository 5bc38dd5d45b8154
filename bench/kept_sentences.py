"""Sentences with things that a translation must keep, and what is right for each.

The right forms are repeated here, not imported from the server: a mistake there would be one here.
"""
# ruff: noqa: E501 - the samples are easier to read in one line each

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SampleThing:
    """A thing, and a pattern of what is right for it in a translation.

    Attributes:
        kind: a row of the table.
        text: in the sentence.
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
        """Whether all things are there as often as here, and nothing remains of stand-ins."""
        if "\ufffd" in translation or len(translation) > 3 * len(self.text) + 40:
            return False
        for thing in self.things:
            wanted = sum(other.text == thing.text for other in self.things)
            if len(re.findall(thing.pattern, translation)) != wanted:
                return False
        remains = re.findall(r"\{\d\}|(?<![\w%])%\d\b|\bXX\d\b", translation)
        return all(each in self.text for each in remains)


TEMPLATES = {
    1: [
        *(
            "{} is on the table.",
            "{}: the dog saw it first.",
            "We saw {} in the garden.",
            "Look at {}.",
        ),
        *(
            "My sister told me that {} was there yesterday.",
            "The old man and his dog found {} near the river.",
        ),
        *(
            "I don't know what {} means.",
            "She asked for {}, but nobody had it.",
            "They were talking about {}",
        ),
        *(
            "If you need {}, please call me.",
            "There is nothing like {} in our house!",
            "Do you know {}?",
        ),
    ],
    2: [
        *("{} and {} are here.", "We saw {} before {} came.", "The letter says {}, and then {}."),
        *("He gave me {} for {}.", "Please send {} to my brother with {}.", "Is it {} or {}?"),
    ],
    3: [
        *("{}, {} and {} are in the book.", "The man with {} wrote {} and then {}."),
        *("Take {} first, then {}, and at last {}.",),
    ],
}
_AT = {
    "time": ["We meet at {}.", "The bus comes at {} every day.", "At {} the shop was closed.",
             "My train leaves at {} tomorrow.", "The film begins at {}, I think."],
    "range of times": ["The shop is open from {}.", "He works from {} every day."],
    "amount": ["He paid {} for it.", "It costs {} today.", "{} is too much for this car.", "I have {}."],
    "quotes": ["He said {} and left.", "The sign says {}.", "{} is what she said."],
    "ordinal": ["It is the {} house on the left.", "This is my {} visit to Rome."],
    "numero": ["{} is alive.", "Track {} is good.", "I live in house {}."],
    "unit": ["The room has {}.", "It is {} from here to the river.", "They need {} for it."],
}  # fmt: skip


def _exact(text: str) -> str:
    before = r"(?<!\w)" if text[0].isalnum() or text[0] == "_" else ""
    after = r"(?!\w)" if text[-1].isalnum() or text[-1] == "_" else ""
    return before + re.escape(text) + after


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choice("0123456789") for _ in range(count))


def _letters(rng: random.Random, count: int, of: str = "ABCDEFGHIJKLMNPRSTUVWXYZ") -> str:
    return "".join(rng.choice(of) for _ in range(count))


def _number(rng: random.Random) -> tuple[str, str]:
    choice = rng.randrange(5)
    if choice == 0:
        number = str(rng.randrange(13, 2030))
    elif choice == 1:
        whole, rest = rng.randrange(1, 999), rng.randrange(1000)
        return f"{whole},{rest:03}", rf"(?<![\d.,]){whole}[. \u00a0']?{rest:03}(?![\d.,]\d)"
    elif choice == 2:
        number = f"{rng.randrange(1, 99)}.{rng.randrange(1, 99)}"
    elif choice == 3:
        number = f"{rng.randrange(1, 29):02}/{rng.randrange(1, 13):02}/{rng.randrange(1990, 2030)}"
    else:
        number = f"{rng.randrange(0, 24)}:{rng.randrange(0, 60):02}"
    wanted = re.escape(number).replace(r"\.", "[.,]").replace("/", "[/.]").replace(":", "[:.]")
    return number, rf"(?<!\d)(?<!\d[.,:/]){wanted}(?!\d|[.,:/]\d)"


def _clock(hour: int, minute: int) -> str:
    said = rf"0?{hour}[:.]{minute:02}(?: Uhr)?"
    return rf"(?:{said}|0?{hour} Uhr)" if minute == 0 else said


def _time(rng: random.Random) -> tuple[str, str]:
    hour, minute = rng.randrange(1, 13), rng.choice([0, 0, 15, 30, 45, rng.randrange(60)])
    half = rng.choice(["am", "pm", "a.m.", "p.m.", "AM", "PM"])
    text = f"{hour}{f':{minute:02}' if minute else ''}{rng.choice([' ', ' ', ''])}{half}"
    there = hour % 12 + (12 if half[0] in "pP" else 0)
    pattern = rf"(?<!\d)(?<!\d[.:])(?:{_clock(there, minute)}|{re.escape(text.rstrip('.'))})(?!\d)"
    if half[0] == "p" and minute == 0:
        pattern += rf"|(?<!\d){hour} Uhr (?:nachmittags|abends|am Nachmittag|am Abend)"
    return text, pattern


def _times(rng: random.Random) -> tuple[str, str]:
    first, second = sorted(rng.sample(range(1, 12), 2))
    half = rng.choice(["am", "pm"])
    more = 12 if half == "pm" else 0
    text = f"{first} {rng.choice(['to', 'to', 'until'])} {second} {half}"
    one, two = _clock(first + more, 0).replace(" Uhr", "(?: Uhr)?"), _clock(second + more, 0)
    return text, rf"(?<!\d){one} bis {two}"


def _amount(rng: random.Random) -> tuple[str, str]:
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
    name = rf"(?:{re.escape(sign)}|{said})"
    space = "[ \u00a0]?"
    return text, rf"(?<![\d.,])(?:{name}{space}{wanted}|{wanted}{space}{name})(?!\d)"


def _unit(rng: random.Random) -> tuple[str, str]:
    number = rng.randrange(2, 900)
    unit, said = rng.choice(
        [("km", "Kilometern?"), ("kg", "Kilogramm"), ("m²", "Quadratmetern?"), ("%", "Prozent"), ("°C", "Grad Celsius"),
         ("km/h", "Kilometer pro Stunde"), ("cm", "Zentimetern?"), ("GB", "Gigabyte"), ("m³", "Kubikmetern?")]
    )  # fmt: skip
    text = f"{number}{rng.choice(['', ' '])}{unit}"
    return text, rf"(?<!\d){number}[ \u00a0]?(?:{re.escape(unit)}|{said})(?!\w)"


def _ordinal(rng: random.Random) -> tuple[str, str]:
    number = rng.randrange(13, 99)
    tail = "th" if 10 < number % 100 < 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{tail}", rf"(?<!\d){number}(?:\.|{tail})?(?!\w)"


def _quotes(rng: random.Random) -> tuple[str, str]:
    said = rng.choice(
        ["I am tired", "the dog is here", "no entry", "come home", "good night", "the red house"]
    )
    opening, closing = rng.choice(['""', "“”", ('\\"',) * 2, ("&quot;",) * 2, "‘’", "''"])
    if len(opening) > 1:
        mark = re.escape(opening)
        return f"{opening}{said}{closing}", rf"{mark}(?:(?!{mark}).){{3,}}{mark}"
    return f"{opening}{said}{closing}", '["„“»‚‘\'«‹›][^"“”„«»]{3,}?["“”«»‘’\'](?!\\w)'


def _verbatim(make: Callable[[random.Random], str]) -> Callable[[random.Random], tuple[str, str]]:
    def sample(rng: random.Random) -> tuple[str, str]:
        text = make(rng)
        return text, _exact(text)

    return sample


def _one_of(*texts: str) -> Callable[[random.Random], tuple[str, str]]:
    return _verbatim(lambda rng: rng.choice(texts))


_NAMES = ["user", "file", "count", "order", "page", "city", "first", "last", "total", "label"]


def _joined(rng: random.Random, by: str) -> str:
    return by.join(rng.sample(_NAMES, 2))


KINDS: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "number": _number,
    "time": _time,
    "range of times": _times,
    "amount": _amount,
    "unit": _unit,
    "ordinal": _ordinal,
    "numero": lambda rng: (
        f"{rng.choice(['No.', 'no.'])} {(number := rng.randrange(13, 400))}",
        rf"(?:Nr\.|Nummer|[Nn]o\.|№) {number}(?!\d)",
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
        *("Киев", "猫", "שלום", "Ἰλιάς", "東京", "مرحبا", "Αθήνα", "नमस्ते", "서울", "สวัสดี", "Москва", "ქართული", "π"),
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
    "message": lambda rng: (
        f"{{{rng.choice(_NAMES)}, plural, one {{# dog}} other {{# dogs}}}}",
        r"\{\w+, plural, one \{# [^{}#]+\} other \{# [^{}#]+\}\}",
    ),
}  # fmt: skip
_ALONE = {"quotes", "range of times", "message"}


def sample_thing(kind: str, rng: random.Random) -> SampleThing:
    """A thing of a kind."""
    return SampleThing(kind, *KINDS[kind](rng))


def sample_sentence(rng: random.Random, kind: str | None = None) -> SampleSentence:
    """A sentence with one to three things, the first of a kind."""
    first = kind or rng.choice(list(KINDS))
    if first in _AT:
        kinds, templates = [first], _AT[first]
        if rng.random() < 0.3 and first not in _ALONE:
            kinds.append(_other(rng))
            templates = [f"{template[:-1]}, and I saw {{}}." for template in templates]
    elif first in _ALONE:
        kinds, templates = [first], TEMPLATES[1]
    else:
        kinds = [first, *(_other(rng) for _ in range(rng.choice([0, 0, 1, 1, 2])))]
        templates = TEMPLATES[len(kinds)]
    things = [sample_thing(each, rng) for each in kinds]
    template = rng.choice(templates)
    if template.endswith(".") and template.endswith("{}.") and things[-1].text.endswith("."):
        template = template[:-1]
    return SampleSentence(template.format(*(thing.text for thing in things)), things)


def _other(rng: random.Random) -> str:
    return rng.choice([kind for kind in KINDS if kind not in _AT and kind not in _ALONE])

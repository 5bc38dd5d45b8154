"""Times of the twelve-hour clock and in words, as other languages write them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from model.bundle.languages import primary_subtag
from model.bundle.spans import Span

_TIME = re.compile(
    r"(?:(?P<hour>\d{1,2})(?:[:.](?P<minute>\d\d)(?:[:.](?P<second>\d\d))?)?"
    r"(?:\s?(?P<half>[ap])\.?\s?m\.?)?"
    r"(?P<link>\s?[-–—]\s?|\s(?:to|until|till|and|or)\s))?"
    r"(?P<hour2>\d{1,2})(?:[:.](?P<minute2>\d\d)(?:[:.](?P<second2>\d\d))?)?"
    r"\s?(?P<half2>[ap])\.?\s?m\.?",
    re.IGNORECASE,
)
_O_CLOCK = re.compile(
    r"(\d{1,2})(?:[:.](\d\d))?(?:\so['’]clock)?(?:\s(?:in\sthe|at)\s(\w+))?", re.IGNORECASE
)
_HOURS_SAID = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_HOUR_WORDS = _HOURS_SAID.split("|")
_PAST = re.compile(
    rf"(?:a\s)?(half|quarter|[\w-]+)\s(past|to)\s(\d{{1,2}}|{_HOURS_SAID})"
    r"(\s?[ap]\.?\s?m\.?|\s(?:in\sthe|at)\s\w+)?",
    re.IGNORECASE,
)
_MINUTES_SAID = "ten|fifteen|twenty(?:-five)?|thirty(?:-five)?|forty(?:-five)?|fifty(?:-five)?"


def _after(*words: str) -> str:
    """A pattern for the places after one of some words."""
    places = (rf"(?<=\b{word}\s)" for word in words)
    return f"(?:{'|'.join(places)})"


_BEFORE_TIMES = ("at", "until", "till", "before", "since", "after", "it is")
# Of sentences in which "ten to six" is a score, and "two fifty" a price.
_NO_TIMES = re.compile(
    r"\b(?:odds|bets?|won|wins?|los[et]|beat|scored?|ratio|shares?|prices?|costs?|sold|fell|rose"
    r"|trad(?:es?|ing)|dollars?|euros?|pounds?)\b",
    re.IGNORECASE,
)
# Elsewhere, "ten to twelve" and "six thirty" may be numbers.
_AFTER_TIME = (
    r"(?=\s*(?:[.,;!?)\"”]|\Z)|\s(?:[ap]\.?\s?m\b|(?:on|in|at|for|from|with|every|and|or|but"
    r"|because|when|sharp|today|tonight|tomorrow|yesterday|this|next|i|we|he|she|they|you|it)\b))"
)
_TIME_IN_WORDS = re.compile(
    r"(?<!\w)(?:"
    r"(?:(?:a\s)?quarter\s(?:past|to)|(?:half|five|ten|twenty(?:-five)?)\spast)"
    rf"\s(?:{_HOURS_SAID})"
    rf"|(?:{_after(*_BEFORE_TIMES)}(?:five|ten|twenty(?:-five)?)\sto\s(?:{_HOURS_SAID})"
    rf"|{_after('by', *_BEFORE_TIMES)}(?:{_HOURS_SAID})\s(?:{_MINUTES_SAID})){_AFTER_TIME})"
    r"(?:\s?(?:[ap]\.\s?m\.|[ap]m\b)|\s(?:in\sthe\s(?:morning|afternoon|evening)|at\snight)\b)?(?![\w-])",
    re.IGNORECASE,
)
# Without one of these, a text in lower case has no such time.
_PARTS_OF_TIMES = (
    *(" past ", "uarter to ", "five to ", "ten to ", "wenty to "),
    *(" fifteen", " twenty", " thirty", " forty", " fifty", *(f"{h} ten" for h in _HOUR_WORDS)),
)
_MINUTES = {
    **{"half": 30, "quarter": 15, "five": 5, "ten": 10, "twenty": 20, "twenty-five": 25},
    **{"fifteen": 15, "thirty": 30, "thirty-five": 35, "forty": 40, "forty-five": 45},
    **{"fifty": 50, "fifty-five": 55},
}
_HOUR_AND_MINUTES = re.compile(
    rf"({_HOURS_SAID})\s({_MINUTES_SAID})(\s?[ap]\.?\s?m\.?|\s(?:in\sthe|at)\s\w+)?", re.IGNORECASE
)
_HOURS_IN_GERMAN = """
zwölf ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn
vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn zwanzig einundzwanzig
zweiundzwanzig dreiundzwanzig
"""
_HOURS = _HOURS_IN_GERMAN.split()
_GERMAN_HOURS = ["eins", *_HOURS[2:13]]
_AROUND = _after("um", "bis", "gegen", "ab", "seit", "von", "es ist", "kurz")
_GERMAN = (
    r"(?<!\w)(?:%s(?P<part>(?:drei\s?)?viertel)\s(?:(?P<side>vor|nach)\s)?"
    r"|(?:(?P<minutes>fünf|zehn)\s(?:Minuten\s)?(?P<beside>vor|nach)\s)?(?P<half>halb)\s"
    r"|%s(?P<past>fünf|zehn|zwanzig)\s(?:Minuten\s)?(?P<where>vor|nach)\s)"
    rf"(?P<hour>{'|'.join(_GERMAN_HOURS)})(?!\w)"
)
_GERMAN_TIME = re.compile(_GERMAN % ("", ""), re.IGNORECASE)
# No noun follows: "halb zwei Euro", "Viertel acht Jahre".
_GERMAN_TIMES = re.compile(
    _GERMAN % (rf"(?:{_AROUND}|\A|(?<=[.!?]\s))", _AROUND)
    + r"(?=\s*(?:[.,;:!?)\"”“]|\Z)|\s(?:Uhr\b|(?-i:[a-zäöü])))",
    re.IGNORECASE,
)
_GERMAN_MINUTES = {"fünf": 5, "zehn": 10, "zwanzig": 20}
_PARTS_OF_GERMAN_TIMES = (
    "halb ",
    "viertel ",
    *(f"{m} {w}" for m in _GERMAN_MINUTES for w in ("vor ", "nach ", "minuten ")),
)
_PARTS_OF_SAID_TIMES = {"en": _PARTS_OF_TIMES, "de": _PARTS_OF_GERMAN_TIMES}
_NOON = re.compile(r"(?:12(?:[:.]00)?\s)?(noon|midnight)")
_HOURS_IN_DIGITS = re.compile(r"(\d\d)(\d\d)\s(?:hours|hrs)")
_DIGITS_ONLY = "bg cs da el es et fi hr hu it lt lv nb nn no pl pt ro ru sk sl sr sv tr uk"
# The whole hour, and hour and minute.
_FORMATS = {
    "de": ("{h} Uhr", "{h}:{m} Uhr"),
    "fr": ("{h} h", "{h} h {m}"),
    "nl": ("{h} uur", "{h}:{m} uur"),
    **dict.fromkeys(_DIGITS_ONLY.split(), ("{h}:{m}", "{h}:{m}")),
    "en": ("{h}:{m}", "{h}:{m}"),  # of German times in words
}
_LINKS = {
    "de": {"to": "bis", "until": "bis", "till": "bis", "and": "und", "or": "oder"},
    "fr": {"to": "à", "until": "à", "till": "à", "and": "et", "or": "ou"},
    "nl": {"to": "tot", "until": "tot", "till": "tot", "and": "en", "or": "of"},
}
_HALVES = {
    "de": {"a": ("morgens", "früh", "vormittags", "am Morgen", "am Vormittag", "nachts"),
           "p": ("nachmittags", "abends", "am Nachmittag", "am Abend", "nachts")},
}  # fmt: skip
# Noon and midnight.
_NOONS = {
    "de": ("Mittag mittags Mittags", "Mitternacht mitternachts Mitternachts"),
    "fr": ("midi Midi", "minuit Minuit"),
    "es": ("mediodía", "medianoche"),
    "it": ("mezzogiorno", "mezzanotte"),
    "nl": ("middag", "middernacht"),
}


@dataclass(frozen=True)
class ClockTime:
    """A time, in hours from 0 to 23, minutes and seconds (two digits; none if empty)."""

    hour: int
    minute: int
    second: str = ""

    def digits(self) -> str:
        """The time in digits, such as 16:45."""
        return f"{self.hour}:{self._minute}"

    @property
    def _minute(self) -> str:
        return f"{self.minute:02}" + (f":{self.second}" if self.second else "")

    @property
    def _is_full(self) -> bool:
        return not self.minute and not self.second

    def written(self, language: str) -> str:
        """The time as a language with the 24-hour clock writes it."""
        whole, full = _FORMATS[language]
        return (whole if self._is_full else full).format(h=self.hour, m=self._minute)

    def forms(self, language: str) -> tuple[str, ...]:
        """All forms of the time that are right in a language, the preferred one first."""
        whole, full = _FORMATS[language]
        minute = self._minute
        hours = dict.fromkeys((str(self.hour), f"{self.hour:02}"))
        found = [self.written(language)]
        for hour in hours:
            found += [
                full.format(h=hour, m=minute),
                full.format(h=hour, m=minute).replace(":", "."),
            ]
            found.append(f"{hour}:{minute}")
            if language != "de":  # where "Am 12.30" is a date
                found.append(f"{hour}.{minute}")
            if self._is_full:
                found.append(whole.format(h=hour, m=minute))
        if self.hour % 12 == 0 and self._is_full:
            found += _NOONS.get(language, ("", ""))[self.hour == 0].split()
            if self.hour == 0:
                found += [form.replace("0", "24", 1) for form in (self.written(language), "0:00")]
        if language in _HALVES and self._is_full:
            half = "p" if self.hour >= 12 else "a"
            short = self.hour % 12 or 12
            hours_said = (f"{short} Uhr", f"{_HOURS[self.hour % 12]} Uhr")
            found += [f"{said} {part}" for said in hours_said for part in _HALVES[language][half]]
            if 12 < self.hour < 24:
                found.append(f"{_HOURS[self.hour]} Uhr")
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Times:
    """A time, or two that are joined as in "6 to 7 pm".

    Attributes:
        times: one time, or two.
        link: the string between two times.
    """

    times: tuple[ClockTime, ...]
    link: str = ""

    def given(self, target: str) -> str:
        """The string that the model reads instead: times in digits."""
        return self.link.join(time.digits() for time in self.times)

    def forms(self, target: str) -> tuple[str, ...]:
        """All forms of the times that are right in the target language."""
        language = primary_subtag(target)
        if len(self.times) == 1:
            return self.times[0].forms(language)
        first, second = (time.forms(language) for time in self.times)
        short = [form.removesuffix(" Uhr") for form in first] if language == "de" else []
        bare = self.link.strip()
        said = _LINKS.get(language, {}).get(bare.lower())
        links = [f" {said} "] if said else [self.link]
        if not said or bare.lower() in ("to", "until", "till"):
            links += ["-", "–", " - ", " – "]
        shorts = list(dict.fromkeys([*short, *first]))
        return tuple(f"{a}{link}{b}" for link in links for a in shorts for b in second)

    def better(self, target: str) -> dict[str, str]:
        """The form to put in the place of a correct one: German says "Uhr"."""
        if primary_subtag(target) != "de" or len(self.times) > 1:
            return {}
        forms = self.times[0].forms("de")
        return {form: f"{form} Uhr" for form in forms if f"{form} Uhr" in forms}


def parsed(text: str) -> Times | None:
    """The times that a string says in the twelve-hour clock; None if it is no such time."""
    if (time := _in_words(text)) is not None:
        return Times((time,))
    match = _TIME.fullmatch(text)
    if match is None or not 1 <= int(match["hour2"]) <= 12:
        return None
    half = match["half2"].lower()
    second = _clock(int(match["hour2"]), int(match["minute2"] or 0), half, match["second2"])
    if match["hour"] is None:
        return Times((second,))
    hour, minute = int(match["hour"]), int(match["minute"] or 0)
    if not 1 <= hour <= 12:
        return None
    if match["half"] is None:
        # "6 to 7 pm" is all after noon; "11 to 1 pm" begins before.
        is_same = hour % 12 <= int(match["hour2"]) % 12
        early = "p" if half == "a" else "a"
        first = _clock(hour, minute, half if is_same else early, match["second"])
    else:
        first = _clock(hour, minute, match["half"].lower(), match["second"])
    return Times((first, second), match["link"])


def _in_words(text: str) -> ClockTime | None:
    """The time that a string says without am or pm, or with a part of the hour before it."""
    if match := _NOON.fullmatch(text):
        return ClockTime(12 if match[1] == "noon" else 0, 0)
    if match := _HOURS_IN_DIGITS.fullmatch(text):
        return ClockTime(int(match[1]), int(match[2]))
    if match := _PAST.fullmatch(text):
        minutes, said = _MINUTES.get(match[1].lower()), match[3].lower()
        hours = _HOUR_WORDS.index(said) + 1 if said in _HOUR_WORDS else int(said)
        if minutes is None or not 1 <= hours <= 12:
            return None
        whole = _clock(hours, 0, _half_of(match[4], hours))
        past = 60 * whole.hour + (minutes if match[2].lower() == "past" else -minutes)
        hour = past // 60 % 24
        return ClockTime(hour if hour or match[4] else 12, past % 60)
    if match := _GERMAN_TIME.fullmatch(text):
        return _in_german(match)
    if match := _HOUR_AND_MINUTES.fullmatch(text):
        hour = _HOUR_WORDS.index(match[1].lower()) + 1
        return _clock(hour, _MINUTES[match[2].lower()], _half_of(match[3], hour))
    match = _O_CLOCK.fullmatch(text)
    if match is None or match[3] is None or not 1 <= int(match[1]) <= 12:
        return None
    hour = int(match[1])
    return _clock(hour, int(match[2] or 0), _half_of(match[3], hour))


def _in_german(match: re.Match[str]) -> ClockTime:
    """A German time in words: halb zehn is 9:30, Viertel nach acht 8:15, dreiviertel acht 7:45."""
    hour = 60 * (_GERMAN_HOURS.index(match["hour"].lower()) + 1)
    if part := match["part"]:
        quarters = 45 if part.lower().startswith("drei") else 15
        if match["side"]:
            past = quarters if match["side"].lower() == "nach" else -quarters
        else:  # Viertel acht is 7:15.
            past = quarters - 60
    else:
        said, side = match["minutes"] or match["past"], match["beside"] or match["where"]
        past = _GERMAN_MINUTES[said.lower()] if said else 0
        past = (past if (side or "").lower() != "vor" else -past) - (30 if match["half"] else 0)
    total = (hour + past) % (12 * 60)
    return ClockTime(total // 60 or 12, total % 60)


def _half_of(part: str | None, hour: int) -> str:
    """The first letter of am or pm, for a part of the day; by default, as the clock shows it."""
    said = (part or "").lower()
    if "night" in said:
        return "a" if hour < 6 or hour == 12 else "p"
    if "noon" in said or "evening" in said:
        return "p"
    if not said.strip():
        return "p" if hour == 12 else "a"
    return "p" if "p" in said else "a"


def may_say_times(text: str, language: str) -> bool:
    """Whether a text may have times in English or German words: a fast scan."""
    parts = _PARTS_OF_SAID_TIMES.get(primary_subtag(language), ())
    return any(map(text.lower().__contains__, parts))


def times_in_words(text: str, language: str) -> Iterator[Span]:
    """The places of English or German times without a digit: half past six, halb sieben."""
    if primary_subtag(language) == "de":
        yield from (Span(*match.span()) for match in _GERMAN_TIMES.finditer(text))
        return
    has_other = _NO_TIMES.search(text) is not None
    for match in _TIME_IN_WORDS.finditer(text):
        said = match.group().lower()
        if not has_other or " past " in said or "quarter" in said:
            yield Span(*match.span())


def is_converted(text: str, target: str) -> bool:
    """Whether a time is converted for a language; elsewhere it stays as in the text.

    English keeps "4 pm" of other languages' texts, and gets their times in words as digits.
    """
    if primary_subtag(target) == "en" and any(map(str.isdigit, text)):
        return False
    return primary_subtag(target) in _FORMATS


def other_hours(time: ClockTime, target: str) -> tuple[str, ...]:
    """Forms of the same minute in all other hours, which models write by mistake."""
    hours = (ClockTime(hour, time.minute, time.second) for hour in range(25) if hour != time.hour)
    language = primary_subtag(target)
    whole = _FORMATS[language][0]
    forms = [hour.forms(language)[:3] for hour in hours]
    longest = [form for found in forms for form in found if form != whole]
    return tuple(sorted(dict.fromkeys(longest), key=len, reverse=True))


def _clock(hour: int, minute: int, half: str, second: str | None = None) -> ClockTime:
    return ClockTime(hour % 12 + (12 if half == "p" else 0), minute, second or "")

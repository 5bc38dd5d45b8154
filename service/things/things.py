"""Finds the things of a text, which a translation copies or converts by rule: codes, times ..."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from model.bundle.languages import primary_subtag
from model.bundle.spans import Span
from service.common.scanning import contains
from service.things import date_scan, numbers_in_words
from service.things.acronyms import is_acronym
from service.things.messages import messages_of
from service.things.patterns import (
    NORMALISED,
    PICTURES,
    PRIVATE,
    SOUND,
    SYMBOLS,
    THING,
    ZONE,
    added_letters,
    foreign_words,
    is_latin,
)
from service.things.runs import has_runs
from service.things.times import may_say_times, times_in_words


class ThingKind(enum.Enum):
    """A kind of thing; the values are the names of the contract's switches."""

    PLACEHOLDER = "placeholders"
    URL = "urls"
    EMAIL = "emails"
    CODE = "code"
    EMOJI = "emoji"
    SYMBOL = "symbols"
    NUMBER = "numbers"
    IDENTIFIER = "identifiers"
    FOREIGN = "foreign_words"


ALL_KINDS = frozenset(ThingKind)


class Form(enum.Enum):
    """The form of a thing. It decides how the thing may change, and what the model reads instead.

    The names are those of the groups in `patterns.THING`, and of what is found beside them.
    """

    CODE = ThingKind.CODE
    URL = ThingKind.URL
    EMAIL = ThingKind.EMAIL
    PLACEHOLDER = ThingKind.PLACEHOLDER
    EMOJI = ThingKind.EMOJI
    SYMBOL = ThingKind.SYMBOL
    NUMBER = ThingKind.NUMBER
    TEMPLATE = "template"
    MESSAGE = "message"
    ESCAPE = "escape"
    SHORTCODE = "shortcode"
    TIME = "time"
    NUMERO = "numero"
    AMOUNT = "amount"
    FEET = "feet"
    PHONE = "phone"
    GROUPS = "groups"
    ORDINAL = "ordinal"
    DECADE = "decade"
    AGE = "age"
    NUMBER_IN_WORDS = "number in words"
    DATE = "date"
    DAY_NAME = "name of a day or month"
    UNIT = "unit"
    PATH = "path"
    HOST = "host"
    IDENTIFIER = ThingKind.IDENTIFIER
    NAME = "name"
    ACRONYM = "acronym"
    SIGN = "sign"
    PRIVATE = "private"
    SOUND = "sound"
    LATIN = "latin"
    FOREIGN = ThingKind.FOREIGN


_KINDS = {form: form.value for form in Form if isinstance(form.value, ThingKind)} | {
    Form.TEMPLATE: ThingKind.PLACEHOLDER,
    Form.MESSAGE: ThingKind.PLACEHOLDER,
    Form.ESCAPE: ThingKind.PLACEHOLDER,
    Form.SHORTCODE: ThingKind.EMOJI,
    Form.TIME: ThingKind.NUMBER,
    Form.NUMERO: ThingKind.NUMBER,
    Form.AMOUNT: ThingKind.NUMBER,
    Form.FEET: ThingKind.NUMBER,
    Form.PHONE: ThingKind.NUMBER,
    Form.GROUPS: ThingKind.IDENTIFIER,
    Form.ORDINAL: ThingKind.NUMBER,
    Form.DECADE: ThingKind.NUMBER,
    Form.AGE: ThingKind.NUMBER,
    Form.NUMBER_IN_WORDS: ThingKind.NUMBER,
    Form.DATE: ThingKind.NUMBER,
    Form.DAY_NAME: ThingKind.NUMBER,
    Form.UNIT: ThingKind.NUMBER,
    Form.PATH: ThingKind.IDENTIFIER,
    Form.HOST: ThingKind.IDENTIFIER,
    Form.NAME: ThingKind.IDENTIFIER,
    Form.ACRONYM: ThingKind.IDENTIFIER,
    Form.SIGN: ThingKind.SYMBOL,
    Form.PRIVATE: ThingKind.SYMBOL,
    Form.SOUND: ThingKind.FOREIGN,
    Form.LATIN: ThingKind.FOREIGN,
}


@dataclass(frozen=True)
class Thing:
    """A part of a text that is not translated."""

    form: Form
    span: Span
    text: str

    @property
    def kind(self) -> ThingKind:
        """The kind of the thing."""
        return _KINDS[self.form]


_MAX_NUMBER = 64
_FRAGILE = frozenset(
    [
        *(Form.TEMPLATE, Form.MESSAGE, Form.SHORTCODE, Form.FEET, Form.PHONE, Form.GROUPS),
        *(Form.PATH, Form.HOST, Form.IDENTIFIER, Form.SIGN, Form.SOUND, Form.FOREIGN),
        Form.PRIVATE,
    ]
)
"""Forms that most models damage, and the sentence with them."""
_PARTS_OF_DATES = frozenset([Form.NUMBER, Form.ORDINAL, Form.ACRONYM])  # MAY 3rd
_SHORT_CODE = re.compile(r"[A-Z]{0,3}\d{1,3}[A-Z]?")

# Without one of these characters or patterns, a text has no thing.
_ASCII_SIGNS = b"0123456789{%$<>=`@/\\#_[+"
_SIGN = re.compile(
    rf"[{re.escape(_ASCII_SIGNS.decode())}{SYMBOLS}{NORMALISED}{PICTURES}{PRIVATE}]"
    r"|[a-zA-Z][A-Z]|\.[a-z]|[\s`]-[a-zA-Z-]|(?<!\w):[a-z]|[a-z]:[a-z]|::|\(\)|&[\w&]|\|\|"
)
_SHAPES = bytes(
    0x41 if 0x41 <= byte <= 0x5A else 0x61 if 0x61 <= byte <= 0x7A else byte for byte in range(256)
)
_PATTERNS = (b"AA", b"aA", b".a", b" -", b"--", b":a", b"::", b"()", b"&a", b"&&", b"||")
# The text before a backslash that belongs to a path of Windows, and is no escape: C:\new
_IN_PATH = re.compile(
    r"""["'(]?(?:[A-Za-z]:|~|\.{1,2}(?:\Z|\\)|%\w+%|\\\\)|.*\\[^nrt"'\\]""", re.DOTALL
)
_MAX_PATH = 260
_BEFORE_BREAKS = tuple(".!?:;,…")
_NOON = re.compile(r"(?<!\w)(?<!after-)(?:noon|midnight)(?![\w-])")  # beside other times
_GERMAN_AM = re.compile(r"(\d{1,2})\sam")
_CLOSING = {")": "(", "]": "["}


def may_have_things(text: str, language: str = "en") -> bool:
    """Whether a text may have things: one fast scan, for the many texts that have none.

    Args:
        text: any text.
        language: BCP-47 code of the text: words in other scripts are things.
    """
    if text.isascii():  # ten times as fast as the pattern
        encoded = text.encode()
        if len(encoded.translate(None, _ASCII_SIGNS)) < len(text):
            return True
        shape = encoded.translate(_SHAPES)
        if any(pattern in shape for pattern in _PATTERNS):
            return True
    elif contains(_SIGN, text):
        return True
    if has_runs(text) or added_letters(text, language):
        return True
    if any(may_have(text, language) for may_have in {may_have for may_have, _ in _IN_WORDS}):
        return True
    foreign = foreign_words(language)
    if foreign is None or (text.isascii() and is_latin(language)):
        return False
    return contains(foreign, text)


def find_things(
    text: str, kinds: frozenset[ThingKind] = ALL_KINDS, language: str = "en"
) -> list[Thing]:
    """The things of a text, in order; they don't overlap.

    Args:
        text: any text.
        kinds: kinds of things to find. A part of a thing of another kind is never found.
        language: BCP-47 code of the text.
    """
    if not may_have_things(text, language):
        return []
    found: list[Thing] = []
    end = 0
    messages = messages_of(text) if ThingKind.PLACEHOLDER in kinds else []
    for message in messages:
        found += _found(text, end, message.start)
        found.append(Thing(Form.MESSAGE, message, text[slice(*message)]))
        end = message.end
    found += _found(text, end, len(text))
    if ThingKind.FOREIGN in kinds and (foreign := foreign_words(language)):
        found = _merged(found, _of(Form.FOREIGN, _spans(foreign, text)), text)
        if added := added_letters(text, language):
            found = _merged(found, _of(Form.LATIN, _spans(added, text)), text)
    if ThingKind.FOREIGN in kinds and has_runs(text):
        found = _merged(found, _of(Form.SOUND, _spans(SOUND, text)), text)
    if ThingKind.NUMBER in kinds:
        for may_have, find in _IN_WORDS:
            if may_have(text, language):
                found = _merged(found, find(text, language), text)
        if any(thing.form is Form.TIME for thing in found):
            found = _merged(found, _of(Form.TIME, _spans(_NOON, text)), text)
    if primary_subtag(language) == "de":
        found = [_without_am(thing) for thing in found]
    found = without_capitals(found, text)
    return [thing for thing in found if thing.kind in kinds]


def _found(text: str, start: int, end: int) -> list[Thing]:
    found = []
    for match in THING.finditer(text, start, end):
        if match.lastgroup == "WORDS":
            continue
        form = Form[match.lastgroup or ""]
        thing = match.group()
        if form is Form.ESCAPE and _is_no_escape(text, match.start(), match.end()):
            continue
        if form in (Form.URL, Form.HOST, Form.PATH):
            thing = _without_punctuation(thing)
        elif form is Form.TIME:
            thing = text[slice(*_without_stop(Span(*match.span()), text))]
        if not (form is Form.NUMBER and len(thing) > _MAX_NUMBER):
            place = match.start()
            found.append(Thing(form, Span(place, place + len(thing)), thing))
    return found


def _without_am(thing: Thing) -> Thing:
    """The thing, or the number of a German "4 am Tisch", which is no time."""
    match = _GERMAN_AM.fullmatch(thing.text) if thing.form is Form.TIME else None
    if match is None:
        return thing
    span = Span(thing.span.start, thing.span.start + len(match[1]))
    return Thing(Form.NUMBER, span, match[1])


def _spans(pattern: re.Pattern[str], text: str) -> Iterable[Span]:
    return (Span(*match.span()) for match in pattern.finditer(text))


def _merged(found: list[Thing], others: Iterable[tuple[Form, Span]], text: str) -> list[Thing]:
    """The things, and others between them. A date replaces the numbers that are parts of it."""
    merged: list[Thing] = []
    things = iter(found)
    thing = next(things, None)
    for form, span in others:
        parts = _PARTS_OF_DATES if form in (Form.DATE, Form.DAY_NAME) else frozenset[Form]()
        while thing is not None and thing.span.end <= span.start:
            merged.append(thing)
            thing = next(things, None)
        while thing is not None and thing.span.end <= span.end and thing.form in parts:
            thing = next(things, None)
        if thing is None or thing.span.start >= span.end:
            merged.append(Thing(form, span, text[slice(*span)]))
    return [*merged, *([thing] if thing else []), *things]


def _of(form: Form, spans: Iterable[Span]) -> Iterator[tuple[Form, Span]]:
    return ((form, span) for span in spans)


def _times(text: str, language: str) -> Iterator[tuple[Form, Span]]:
    return _of(Form.TIME, (_without_stop(span, text) for span in times_in_words(text, language)))


def _dates(text: str, language: str) -> Iterator[tuple[Form, Span]]:
    for span, date in date_scan.dates_to_keep(text, language):
        if date.day:
            yield Form.DATE, _without_stop(span, text)
        else:
            yield Form.DAY_NAME, span


def _ages(text: str, language: str) -> Iterator[tuple[Form, Span]]:
    return _of(Form.AGE, numbers_in_words.ages(text, language))


def _decades(text: str, language: str) -> Iterator[tuple[Form, Span]]:
    return _of(Form.DECADE, numbers_in_words.decades(text, language))


def _numbers(text: str, language: str) -> Iterator[tuple[Form, Span]]:
    found = numbers_in_words.numbers_to_keep(text, language)
    return _of(Form.NUMBER_IN_WORDS, (span for span, _ in found))


_MayHave = Callable[[str, str], bool]
_Find = Callable[[str, str], Iterable[tuple[Form, Span]]]
# Each with a fast scan that says whether a text may have it; those found first come first.
_IN_WORDS: tuple[tuple[_MayHave, _Find], ...] = (
    (may_say_times, _times),
    (date_scan.may_have, _dates),
    (numbers_in_words.may_have, _ages),
    (numbers_in_words.may_have, _decades),
    (numbers_in_words.may_have, _numbers),
)


def without_capitals(things: list[Thing], text: str) -> list[Thing]:
    """The things without acronyms that may be words in capitals, as in a headline.

    Args:
        things: things of a sentence.
        text: the sentence.
    """
    acronyms = [thing for thing in things if thing.form is Form.ACRONYM]
    if not acronyms:
        return things
    num_words = sum(any(map(str.islower, word)) for word in text.split())
    if num_words <= len(acronyms):
        return [thing for thing in things if thing.form is not Form.ACRONYM]
    return [t for t in things if t.form is not Form.ACRONYM or is_acronym(t.text)]


def is_fragile(thing: Thing) -> bool:
    """Whether most models damage the thing, and often the sentence around it."""
    if thing.form is Form.IDENTIFIER:
        return _SHORT_CODE.fullmatch(thing.text) is None
    is_printf = thing.form is Form.PLACEHOLDER and thing.text[0] == "%"
    return thing.form in _FRAGILE or is_printf


def _without_stop(time: Span, text: str) -> Span:
    """The place of a time without a full stop that also ends the sentence."""
    has_stop = text[time.end - 1] == "." and _ends_sentence(text, time.end)
    return Span(time.start, time.end - has_stop)


def _ends_sentence(text: str, end: int) -> bool:
    """Whether the text after a full stop shows that it also ends a sentence."""
    rest = text[end : end + 3]
    after = rest.lstrip()
    if ZONE.match(text, end):
        return False
    return not after or (rest[0].isspace() and after[0].isupper()) or rest[0] in '"”“’»'


def may_be_word(text: str, start: int, end: int) -> bool:
    r"""Whether an escape may be the beginning of a word, as in \times, or of a name in a path.

    It may if it is a single escape before a letter in lower case, and not after a sentence's end.
    """
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    return end - start == 2 and after.islower() and before not in _BEFORE_BREAKS


def _is_no_escape(text: str, start: int, end: int) -> bool:
    r"""Whether a backslash begins a command such as \times, or stands in a path of Windows."""
    is_after_word = text[max(0, start - 1) : start].isalnum()
    return (may_be_word(text, start, end) and not is_after_word) or is_in_path(text, start)


def is_in_path(text: str, position: int) -> bool:
    """Whether a backslash stands in a path of Windows: the word before it says so."""
    before = text[max(0, position - _MAX_PATH) : position]
    words = before.split()
    return bool(words) and not before[-1].isspace() and _IN_PATH.match(words[-1]) is not None


def _without_punctuation(url: str) -> str:
    """A URL without what ends the sentence, or a bracket around it."""
    end = len(url)
    unopened = {close: url.count(close) - url.count(begin) for close, begin in _CLOSING.items()}
    while end > 1:
        last = url[end - 1]
        if unopened.get(last, 0) > 0:
            unopened[last] -= 1
        elif last not in ".,;:!?…*":
            break
        end -= 1
    return url[:end]

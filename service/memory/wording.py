"""The wording of a text: the text without regard to white space, letter case and things."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from service.things.things import ALL_KINDS, Form, Thing, find_things

REPLACED = frozenset(
    [
        *(Form.CODE, Form.URL, Form.EMAIL, Form.PLACEHOLDER, Form.TEMPLATE, Form.NUMBER),
        *(Form.TIME, Form.NUMERO, Form.AMOUNT, Form.PHONE, Form.GROUPS, Form.ORDINAL),
        *(Form.DATE, Form.DECADE, Form.UNIT, Form.PATH, Form.HOST, Form.IDENTIFIER),
    ]
)
"""Forms of things that may differ between texts of one wording; not names and words."""

# A word, or a character of a script that is written without spaces, or the place of a thing.
_WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|\w+|\0")


def normalised(text: str) -> str:
    """A text in normal form C, with single spaces between words and none around it."""
    return " ".join(unicodedata.normalize("NFC", text).split())


@dataclass(frozen=True)
class Wording:
    """A text as it is compared with others.

    Attributes:
        text: the text, normalised.
        things: things of the text that may differ, in order.
    """

    text: str
    things: tuple[Thing, ...]

    @classmethod
    def of(cls, text: str, language: str) -> Wording:
        """The wording of a text.

        Args:
            text: any text.
            language: BCP-47 code of the text.
        """
        plain = normalised(text)
        found = find_things(plain, ALL_KINDS, language)
        return cls(plain, tuple(thing for thing in found if thing.form in REPLACED))

    @cached_property
    def shape(self) -> str:
        """The text with marks in place of its things, without regard to letter case.

        Texts of the same shape have the same forms of things, in the same order.
        """
        return self._marked(lambda thing: f"\0{thing.form.name}\0")

    @cached_property
    def folded(self) -> str:
        """The text without regard to letter case."""
        return self.text.casefold()

    def features(self) -> Iterator[str]:
        """Strings that similar texts have in common, those that say most first.

        They are pairs of neighbours and words, the long ones first. Every other pair comes first:
        together these have all words. A beginning and an end are neighbours of the words there.
        """
        words = ["", *_WORD.findall(self._marked(lambda _: "\0")), ""]
        pairs = [f"{one} {next_one}" for one, next_one in itertools.pairwise(words)]
        longest_first = sorted(words[1:-1], key=len, reverse=True)
        yield from dict.fromkeys((*pairs[::2], *longest_first, *pairs[1::2]))

    def _marked(self, mark: Callable[[Thing], str]) -> str:
        pieces, end = list[str](), 0
        for thing in self.things:
            pieces += (self.text[end : thing.span.start].casefold(), mark(thing))
            end = thing.span.end
        return "".join([*pieces, self.text[end:].casefold()])

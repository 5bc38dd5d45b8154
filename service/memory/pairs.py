"""The types and limits of translation memories."""

from __future__ import annotations

import re
from dataclasses import dataclass

from model.bundle.languages import is_language_code, without_region
from service.errors import InvalidArgumentError

MAX_MEMORIES = 100
"""Most memories of one owner."""
MAX_PAIRS = 2_000_000
"""Most pairs of one memory."""
MAX_CHARACTERS = 2_000
"""Most characters of a text, and of its translation."""
MAX_OWNER_CHARACTERS = 1_000_000_000
"""Most characters of all pairs of one owner. The database has two bytes or more for each."""

MAX_GROWTH, MAX_MORE = 4, 200
"""Most characters of a translation: four for each of its text, and 200. Models write as many."""
MAX_ALTERNATIVES = 500
"""About the most similar pairs that a call returns."""
DEFAULT_THRESHOLD = 0.75
"""Least score of similar pairs, where a request says nothing."""
LEAST_THRESHOLD = 0.5

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# Characters that XML, and so TMX, can't contain; a line break in an old form is none of them.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class TextPair:
    """A text and its translation.

    Attributes:
        source, target: the text and the translation, without white space around them.
        source_language, target_language: BCP-47 codes.
    """

    source: str
    target: str
    source_language: str
    target_language: str

    def check(self) -> None:
        """Raise InvalidArgumentError, which names the field and the limit, for a bad pair."""
        for name in ("source", "target"):
            if not is_language_code(getattr(self, f"{name}_language")):
                raise InvalidArgumentError(f"{name}_language_code", "is no language code")
        for field, text in (("source_text", self.source), ("translated_text", self.target)):
            if not text.strip():
                raise InvalidArgumentError(field, "is empty")
            if len(text) > MAX_CHARACTERS:
                raise InvalidArgumentError(
                    field, f"{len(text):,} characters, the limit is {MAX_CHARACTERS:,}"
                )
            if found := _NOT_XML.search(text):
                raise InvalidArgumentError(
                    field, f"contains the control character U+{ord(found[0]):04X}"
                )
        length = len(" ".join(self.source.split()))
        if len(self.target) > (most := MAX_GROWTH * length + MAX_MORE):
            raise InvalidArgumentError(
                "translated_text",
                f"{len(self.target):,} characters, the limit for a text of {length:,} is {most:,}",
            )


@dataclass(frozen=True)
class StoredMemory:
    """Description of a stored memory.

    Attributes:
        id: number in the store, which is never used again.
        name: name that the owner chose.
        num_pairs: number of pairs.
    """

    id: int
    name: str
    num_pairs: int


@dataclass(frozen=True)
class MemoryUse:
    """The use of a memory by a request.

    Attributes:
        memory: the memory.
        source, target: BCP-47 codes of the languages.
        threshold: least score of similar pairs; 1 for none.
    """

    memory: StoredMemory
    source: str
    target: str
    threshold: float = 1.0


def languages_key(source: str, target: str) -> str:
    """The name of a pair of languages, by which pairs are found: a region does not count."""
    return f"{without_region(source)} {without_region(target)}".lower()


def checked_name(name: str) -> str:
    """The name of a new memory. Raises InvalidArgumentError if it can't be one."""
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            "name", "must have 1 to 100 letters of ASCII, digits, and -_. after the first of these"
        )
    return name

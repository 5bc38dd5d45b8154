"""A document: blocks that are copied, and runs of text with inline markup between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chars:
    """Some text.

    Attributes:
        text: text for the model: decoded, on one line.
        raw: text as in the document.
    """

    text: str
    raw: str


@dataclass(frozen=True, slots=True)
class StartTag:
    """The start tag of an inline element."""

    raw: str
    name: str


@dataclass(frozen=True, slots=True)
class EndTag:
    """The end tag of an inline element."""

    raw: str
    name: str


@dataclass(frozen=True, slots=True)
class Atom:
    """Inline markup without text: an image, a comment.

    Attributes:
        raw: markup as in the document.
        is_mark: whether it belongs to the word that it touches, such as the mark of a footnote.
    """

    raw: str
    is_mark: bool = False


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Inline text that stays as it is, with its tags, such as code."""

    raw: str


Item = Chars | StartTag | EndTag | Atom | Verbatim


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the document that is copied and ends a sentence."""

    raw: str


@dataclass(frozen=True, slots=True)
class TextRun:
    """Text without a block in it, as a sequence of items."""

    items: Sequence[Item]

    @property
    def raw(self) -> str:
        """The run as it is in the document."""
        return "".join(item.raw for item in self.items)

    @property
    def text(self) -> str:
        """The text of the run, without verbatim parts."""
        return "".join(item.text for item in self.items if isinstance(item, Chars))

    @property
    def num_verbatim(self) -> int:
        """The number of verbatim items."""
        return sum(isinstance(item, Verbatim) for item in self.items)

    @property
    def has_text(self) -> bool:
        """Whether there is something to translate."""
        return any(isinstance(item, Chars) and not item.text.isspace() for item in self.items)


Document = list[Block | TextRun]
"""The raw parts, joined, are exactly the document."""


class MarkupError(ValueError):
    """A document can't be translated; the message says why."""

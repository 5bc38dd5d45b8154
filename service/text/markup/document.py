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


class DocumentBuilder:
    """Collects the parts of a document in order: items until a block ends their run."""

    def __init__(self) -> None:
        self._parts: Document = []
        self._items: list[Item] = []

    def add(self, item: Item) -> None:
        """Add an item to the current run."""
        if item.raw:
            self._items.append(item)

    def block(self, raw: str) -> None:
        """End the run, and add a block."""
        self._end_run()
        if raw:
            self._parts.append(Block(raw))

    def finish(self) -> Document:
        """The document."""
        self._end_run()
        return self._parts

    def _end_run(self) -> None:
        if self._items:
            run = TextRun(self._items)
            self._parts.append(run if run.has_text else Block(run.raw))
            self._items = []

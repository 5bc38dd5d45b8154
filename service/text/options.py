"""Options of the stages above the sentence translator."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from service.errors import InvalidArgumentError
from service.glossaries.glossary import NO_GLOSSARY, Glossary
from service.things.things import ThingKind

MAX_IGNORED_TAGS = 100


class LineBreaks(enum.Enum):
    """The meaning of a line break within a text; the values are the names of the contract."""

    KEEP = "keep"
    JOIN = "join"
    AUTO = "auto"


class MimeType(enum.Enum):
    """The format of the texts of a request."""

    PLAIN = "text/plain"
    HTML = "text/html"
    XML = "text/xml"
    MARKDOWN = "text/markdown"


_BY_NAME = {
    "": MimeType.PLAIN,
    **{each.value: each for each in MimeType},
    "application/xml": MimeType.XML,
}


def mime_type_of(name: str) -> MimeType:
    """The format with this name, in upper or lower case; "" is plain text.

    Raises:
        InvalidArgumentError: the type is not supported; lists the supported ones.
    """
    found = _BY_NAME.get(name.strip().lower())
    if found is None:
        known = ", ".join(key for key in _BY_NAME if key)
        raise InvalidArgumentError("mime_type", f"unknown; there are: {known}")
    return found


@dataclass(frozen=True)
class TextOptions:
    """Options of the stages above the sentence translator.

    A request without any of them has the defaults, and needs no stage.

    Attributes:
        mime_type: the format of the texts.
        ignore_tags: elements whose content is copied, in addition to those of the format.
        verbatim: kinds of things that are kept as they are.
        adapt_letter_case: whether CAPITALS and Title Case are translated in another letter case.
        glossary: terms and their translations.
        line_breaks: meaning of a line break within a text; None for the default of the format.
    """

    mime_type: MimeType = MimeType.PLAIN
    ignore_tags: tuple[str, ...] = ()
    verbatim: frozenset[ThingKind] = frozenset()
    adapt_letter_case: bool = False
    glossary: Glossary = NO_GLOSSARY
    line_breaks: LineBreaks | None = None

    def __post_init__(self) -> None:
        if self.ignore_tags and self.mime_type not in (MimeType.HTML, MimeType.XML):
            raise InvalidArgumentError("options.ignore_tags", "only HTML and XML have tags")
        if self.mime_type is MimeType.MARKDOWN and self.line_breaks is LineBreaks.KEEP:
            raise InvalidArgumentError(
                "options.line_breaks", "Markdown has rules of its own, without KEEP"
            )

    @property
    def needs_terms(self) -> bool:
        """Whether sentences need the stage for things, terms and letter case."""
        return bool(self.verbatim or self.adapt_letter_case or self.glossary)

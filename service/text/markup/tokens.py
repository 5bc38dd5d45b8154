"""Cuts HTML and XML into tags and what is between them; all tokens, joined, are the document.

Time is linear in the length of any input. (`html.parser` of the standard library takes quadratic
time for unclosed comments and tags.) Markup that is broken is text, or what browsers take it for.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass

# Attempts to find the end of a tag with an unclosed quotation mark, or of a declaration, each of
# which can read the rest of the document.
_MAX_UNCLOSED = 16

_START_TAG = re.compile(
    r"""<([A-Za-z_][^\s/<>"'=]*+)(?:[^<>"']++|"[^"]*+"|'[^']*+'|<(?=["']))*+>"""
)
_PLAIN_TAG = re.compile(r"""<([A-Za-z_][^\s/<>"'=]*+)[^<>]*+>""")
_END_TAG = re.compile(r"</([A-Za-z_][^\s/<>]*+)[^<>]*+>")
# A tag that the document ends in: of `a <b and c`, only a name and an attribute could be one.
_CUT_TAG = re.compile(
    r"""</[A-Za-z_][^<>]*+\Z
    | <[A-Za-z_][^\s/<>"'=]*+ (?:\s*+ | \s++[^\s<>"'=]++ (?:\s*+=[^<>]*+)?+ | \s*+/)\Z""",
    re.VERBOSE,
)
_ATTRIBUTE = re.compile(
    r"""([^\s"'<>/=]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'=<>`]++)))?+"""
)
_DECLARATION = re.compile(r"<![A-Za-z][^<>\[]*+>")
_DOCTYPE = re.compile(r"<![A-Za-z][^<>\[]*+\[[^\]]*+\]\s*+>")  # with an internal subset


class Kind(enum.Enum):
    """The kind of a token."""

    TEXT = enum.auto()
    START = enum.auto()
    END = enum.auto()
    EMPTY = enum.auto()  # <br/>
    OTHER = enum.auto()  # comment, declaration, processing instruction, CDATA section, cut tag
    CONTENT = enum.auto()  # of a script or style, which has no tags


@dataclass(frozen=True, slots=True)
class MarkupToken:
    """A part of a document.

    Attributes:
        kind: what it is.
        raw: as in the document.
        name: of a tag; in lower case for HTML.
        is_complete: False for a section or a tag that the document ends in.
    """

    kind: Kind
    raw: str
    name: str = ""
    is_complete: bool = True

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of a start tag, by name in lower case."""
        inner = self.raw[1 + len(self.name) :].rstrip("/>")
        return {
            match[1].lower(): match[2] or match[3] or match[4] or ""
            for match in _ATTRIBUTE.finditer(inner)
        }


# Elements whose content has no tags.
_RAW_ELEMENTS = ("script", "style", "xmp", "iframe", "noembed", "noframes", "title", "textarea")
_TEXT_ELEMENTS = ("title", "textarea")
_RAW_ENDS = {name: re.compile(rf"</{name}(?=[\s/>]|\Z)", re.IGNORECASE) for name in _RAW_ELEMENTS}
# What begins so ends so; unclosed, it is the rest of the document.
_HTML_SECTIONS = (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", ">"))
_XML_SECTIONS = (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>"))


def tokenize(document: str, *, is_xml: bool = False) -> Iterator[MarkupToken]:
    """The tokens of a document.

    Args:
        document: HTML or XML, or a fragment.
        is_xml: whether names count in upper and lower case, and no element is special.
    """
    return _Tokenizer(document, is_xml).tokens()


class _Tokenizer:
    def __init__(self, document: str, is_xml: bool) -> None:
        self._document = document
        self._is_xml = is_xml
        self._sections = _XML_SECTIONS if is_xml else _HTML_SECTIONS
        self._num_unclosed = 0

    def tokens(self) -> Iterator[MarkupToken]:
        document = self._document
        text_start = position = 0
        while (position := document.find("<", position)) >= 0:
            token = self._markup(position)
            if token is None:
                position += 1
                continue
            if text_start < position:
                yield MarkupToken(Kind.TEXT, document[text_start:position])
            yield token
            position += len(token.raw)
            if token.kind is Kind.START and not self._is_xml and token.name in _RAW_ENDS:
                found = _RAW_ENDS[token.name].search(document, position)
                end = found.start() if found else len(document)
                kind = Kind.TEXT if token.name in _TEXT_ELEMENTS else Kind.CONTENT
                if position < end:
                    yield MarkupToken(kind, document[position:end])
                position = end
            text_start = position
        if text_start < len(document):
            yield MarkupToken(Kind.TEXT, document[text_start:])

    def _markup(self, start: int) -> MarkupToken | None:
        """The tag or section that begins here, if there is one."""
        document = self._document
        following = document[start + 1 : start + 2]
        if following == "/":
            match = _END_TAG.match(document, start)
            if match is None:
                return self._cut_tag(start)
            return MarkupToken(Kind.END, match[0], self._name(match[1]))
        if following in ("!", "?"):
            return self._section(start)
        if not (following.isalpha() or following == "_"):
            return None
        match = self._long_match(_START_TAG, start) or _PLAIN_TAG.match(document, start)
        if match is None:
            return self._cut_tag(start)
        kind = Kind.EMPTY if match[0].endswith("/>") else Kind.START
        return MarkupToken(kind, match[0], self._name(match[1]))

    def _cut_tag(self, start: int) -> MarkupToken | None:
        match = _CUT_TAG.match(self._document, start)
        return MarkupToken(Kind.OTHER, match[0], is_complete=False) if match else None

    def _section(self, start: int) -> MarkupToken | None:
        document = self._document
        for opening, closing in self._sections:
            if document.startswith(opening, start):
                end = document.find(closing, start + len(opening))
                if end < 0:
                    return MarkupToken(Kind.OTHER, document[start:], is_complete=False)
                return MarkupToken(Kind.OTHER, document[start : end + len(closing)])
        match = _DECLARATION.match(document, start) or self._long_match(_DOCTYPE, start)
        return MarkupToken(Kind.OTHER, match[0]) if match else None

    def _long_match(self, pattern: re.Pattern[str], start: int) -> re.Match[str] | None:
        """The match of a pattern that reads the rest of the document if it has none."""
        if self._num_unclosed >= _MAX_UNCLOSED:
            return None
        match = pattern.match(self._document, start)
        self._num_unclosed += match is None
        return match

    def _name(self, name: str) -> str:
        return name if self._is_xml else name.lower()

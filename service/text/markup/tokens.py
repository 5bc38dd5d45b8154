"""Divides HTML and XML into tags and text. All tokens, joined, are the document.

Time is linear in the length of any input. (`html.parser` of the standard library takes quadratic
time for unclosed comments and tags.) Broken markup is text, or read as browsers read it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Attempts to find the end of a declaration with a subset or with quotation marks, each of which can
# read the rest of the document.
_MAX_UNCLOSED = 16

_QUOTED = r""" "[^"]*+" | '[^']*+' """
_ATTRIBUTE = re.compile(
    r"""([^\s"'<>/=]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'=<>`]++)))?+"""
)
_DECLARATION = re.compile(r"<![A-Za-z][^<>\[]*+>")
_DOCTYPE = re.compile(r"<![A-Za-z][^<>\[]*+\[[^\]]*+\]\s*+>")  # with an internal subset
# A quotation mark in a comment or in an instruction of the subset opens nothing.
_XML_DECLARATION = re.compile(
    rf"""<![A-Za-z] (?: [^<>\["']++ | {_QUOTED} )*+
    (?:
        \[
        (?:
            [^<\]"']++ | {_QUOTED}
            | <!-- (?:[^-]++|-(?!->))*+ -->
            | <\? (?:[^?]++|\?(?!>))*+ \?>
            | <(?!!--|\?)
        )*+
        \]\s*+
    )?+ >""",
    re.VERBOSE,
)
# Word writes <![if !supportLists]> and <![endif]>, which browsers take for comments.
_CONDITION = re.compile(r"<!\[[^<>]*+>")


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
        kind: the kind of the part.
        raw: the part as it is in the document.
        name: name of a tag; in lower case for HTML.
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


class _Syntax:
    """The patterns of tags and sections in one of the languages."""

    def __init__(self, name_start: str, sections: Sequence[tuple[str, str]]) -> None:
        name = rf"""{name_start}[^\s/<>"'=]*+"""
        # No limit of attempts is needed: three at most read any character. An attempt is outside
        # quotation marks, or inside one of the two kinds. A mark swaps two of these states, so two
        # attempts that differ always will; and one that is outside fails where the next begins.
        self.start_tag = re.compile(
            rf"""<({name}) (?: [^<>"']++ | {_QUOTED} | <(?=["']) )*+ >""", re.VERBOSE
        )
        self.plain_tag = re.compile(rf"<({name})[^<>]*+>")
        self.end_tag = re.compile(rf"</({name_start}[^\s/<>]*+)[^<>]*+>")
        # A tag that the document ends in: of `a <b and c`, only a name and an attribute could.
        self.cut_tag = re.compile(
            rf"""</{name_start}[^<>]*+\Z
            | <{name} (?:\s*+ | \s++[^\s<>"'=]++ (?:\s*+=[^<>]*+)?+ | \s*+/)\Z""",
            re.VERBOSE,
        )
        # By how they begin; unclosed, each is the rest of the document.
        self.sections = [(opening, re.compile(rest, re.DOTALL)) for opening, rest in sections]


_HTML = _Syntax(
    "[A-Za-z_]",
    # Browsers end a comment at once after <!--> and <!--->, and at --!> too.
    [("<!--", "-?>|.*?--!?>"), ("<![CDATA[", r".*?\]\]>"), ("<?", ".*?>")],
)
_XML = _Syntax(
    r"(?:[^\W\d]|:)",  # any letter, or _
    [("<!--", ".*?-->"), ("<![CDATA[", r".*?\]\]>"), ("<?", r".*?\?>")],
)


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
        self._syntax = _XML if is_xml else _HTML
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
        document, syntax = self._document, self._syntax
        following = document[start + 1 : start + 2]
        if following == "/":
            match = syntax.end_tag.match(document, start)
            if match is None:
                return self._cut_tag(start)
            return MarkupToken(Kind.END, match[0], self._name(match[1]))
        if following in ("!", "?"):
            return self._section(start)
        match = syntax.start_tag.match(document, start) or syntax.plain_tag.match(document, start)
        if match is None:
            return self._cut_tag(start)
        kind = Kind.EMPTY if match[0].endswith("/>") else Kind.START
        return MarkupToken(kind, match[0], self._name(match[1]))

    def _cut_tag(self, start: int) -> MarkupToken | None:
        match = self._syntax.cut_tag.match(self._document, start)
        return MarkupToken(Kind.OTHER, match[0], is_complete=False) if match else None

    def _section(self, start: int) -> MarkupToken | None:
        document = self._document
        for opening, rest in self._syntax.sections:
            if document.startswith(opening, start):
                match = rest.match(document, start + len(opening))
                end = match.end() if match else len(document)
                return MarkupToken(Kind.OTHER, document[start:end], is_complete=match is not None)
        match = self._declaration(start)
        return MarkupToken(Kind.OTHER, match[0]) if match else None

    def _declaration(self, start: int) -> re.Match[str] | None:
        document = self._document
        if self._is_xml:
            match = self._long_match(_XML_DECLARATION, start)
        else:  # browsers end a declaration at the first > even within quotation marks
            match = _CONDITION.match(document, start)
        return match or _DECLARATION.match(document, start) or self._long_match(_DOCTYPE, start)

    def _long_match(self, pattern: re.Pattern[str], start: int) -> re.Match[str] | None:
        """The match of a pattern that can read the rest of the document if it has none."""
        if self._num_unclosed >= _MAX_UNCLOSED:
            return None
        match = pattern.match(self._document, start)
        self._num_unclosed += match is None
        return match

    def _name(self, name: str) -> str:
        return name if self._is_xml else name.lower()

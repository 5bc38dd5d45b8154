"""Parses HTML and XML into blocks and runs.

Which elements are inline is known for HTML. In XML, and for unknown names, an element is inline if
text stands beside it in its parent, or if its parent is inline.
"""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from service.text.markup.builder import DocumentBuilder
from service.text.markup.document import (
    Atom,
    Chars,
    Document,
    EndTag,
    MarkupError,
    StartTag,
    Verbatim,
)
from service.text.markup.tokens import Kind, MarkupToken, tokenize

MAX_TAGS = 50_000
"""Tags, comments and entities of a document."""

_INLINE = frozenset(
    """
    a abbr acronym b bdi bdo big button cite data del dfn em font i img input ins label map mark
    meter nobr output picture progress q ruby rb rp rt rtc s small source span strike strong sub
    sup time tt u wbr
    """.split()  # noqa: SIM905
)
_INLINE_VERBATIM = frozenset(("code", "kbd", "samp", "var", "math", "svg"))
_BLOCK = frozenset(
    """
    address article aside audio base blockquote body br canvas caption center col colgroup dd
    details dialog dir div dl dt embed fieldset figcaption figure footer form frame frameset h1 h2
    h3 h4 h5 h6 head header hgroup hr html iframe legend li link main menu meta nav
    noembed noframes noscript object ol optgroup option p param pre script search section select
    slot style summary table tbody td template textarea tfoot th thead title tr track ul video xmp
    """.split()  # noqa: SIM905
)
_VERBATIM = _INLINE_VERBATIM | {"pre", "script", "style", "xmp", "iframe", "noembed", "noframes"}
_VOID = frozenset(
    """
    area base br col embed frame hr img input link meta param source track wbr
    """.split()  # noqa: SIM905
)

# Every character of a line break is a space to the model, which keeps positions. So is a tab.
_LINE_BREAKS = {ord(c): " " for c in "\t\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}
# Line breaks and tabs that divide text, also as entities.
_BREAKS = re.compile(
    r"((?:[\n\r\v\f\x1c-\x1e\x85\u2028\u2029\t]|&#(?:0*(?:9|10|13)|[xX]0*[9aAdD]);)++)"
)
_CHARACTER = "#[0-9]{1,7};?|#[xX][0-9A-Fa-f]{1,6};?"
_ENTITY = re.compile(rf"&(?:{_CHARACTER}|[A-Za-z][A-Za-z0-9]{{1,31}};)")
# A document type can define any name.
_XML_ENTITY = re.compile(rf"&(?:{_CHARACTER}|[A-Za-z_:][\w:.-]{{0,63}};)")
_XML_ENTITIES = ("&amp;", "&lt;", "&gt;", "&quot;", "&apos;")


def parse_markup(
    document: str, *, is_xml: bool, ignore_tags: Collection[str] = (), keeps_lines: bool = False
) -> Document:
    """The parts of a document.

    Args:
        document: HTML or XML, or a fragment.
        is_xml: whether it is XML.
        ignore_tags: names of further elements whose content is copied.
        keeps_lines: whether line breaks and tabs in text divide it; otherwise they are spaces.

    Raises:
        MarkupError: there are too many tags.
    """
    tokens = []
    for token in tokenize(document, is_xml=is_xml):
        tokens.append(token)
        if len(tokens) > 2 * MAX_TAGS:  # about every second one is text
            raise MarkupError(f"more than {MAX_TAGS:,} tags, the limit")
    ignored = ignore_tags if is_xml else [name.lower() for name in ignore_tags]
    parser = _HtmlParser(tokens, is_xml, frozenset(ignored), keeps_lines)
    return parser.parse()


class _HtmlParser:
    def __init__(
        self,
        tokens: Sequence[MarkupToken],
        is_xml: bool,
        ignored: Collection[str],
        keeps_lines: bool,
    ) -> None:
        self._tokens = tokens
        self._is_xml = is_xml
        self._ignored = ignored
        self._keeps_lines = keeps_lines
        self._ends = _matching_ends(tokens, () if is_xml else _VOID)
        self._inline = _inline_elements(tokens, self._ends, () if is_xml else _BLOCK)
        self._builder = DocumentBuilder(has_controls=not is_xml)

    def parse(self) -> Document:
        index = 0
        while index < len(self._tokens):
            index = self._add(index)
        return self._builder.finish()

    def _add(self, index: int) -> int:
        """Add the token with this index, and what belongs to it; the index of the next one."""
        token, builder = self._tokens[index], self._builder
        if token.kind is Kind.TEXT:
            self._add_text(token.raw)
        elif token.kind is Kind.START and self._is_verbatim(token):
            return self._add_verbatim(index)
        elif token.kind is Kind.OTHER:
            self._add_other(token)
        elif token.kind is Kind.CONTENT or not self._is_inline(index):
            builder.block(token.raw)
        elif token.kind is Kind.EMPTY or (not self._is_xml and token.name in _VOID):
            builder.add(Atom(token.raw))
        else:
            tag = StartTag if token.kind is Kind.START else EndTag
            builder.add(tag(token.raw, token.name))
        return index + 1

    def _add_text(self, raw: str) -> None:
        parts = _BREAKS.split(raw) if self._keeps_lines else [raw]
        for number, part in enumerate(parts):
            if number % 2:
                self._builder.block(part)
                continue
            for chars in decode(part, is_xml=self._is_xml):
                self._builder.add(chars)

    def _add_other(self, token: MarkupToken) -> None:
        is_declaration = token.raw.startswith("<!") and token.raw[2:3].isalpha()
        if is_declaration or not token.is_complete:
            self._builder.block(token.raw)
        else:
            self._builder.add(Atom(token.raw))

    def _add_verbatim(self, index: int) -> int:
        """Add an element that is copied: up to its end tag or, without one, the next block."""
        tokens, end = self._tokens, self._ends.get(index)
        is_inline = self._is_inline(index)
        if end is None:
            end = index
            while is_inline and end + 1 < len(tokens) and self._is_inline(end + 1):
                end += 1
        raw = "".join(token.raw for token in tokens[index : end + 1])
        if is_inline:
            self._builder.add(Verbatim(raw))
        else:
            self._builder.block(raw)
        return end + 1

    def _is_verbatim(self, token: MarkupToken) -> bool:
        if token.name in self._ignored:
            return True
        if self._is_xml:
            return False
        if token.name in _VOID:
            return False
        if token.name in _VERBATIM:
            return True
        if "translate" not in token.raw.lower():
            return False
        attributes = token.attributes
        classes = attributes.get("class", "").split()
        return attributes.get("translate", "").lower() == "no" or "notranslate" in classes

    def _is_inline(self, index: int) -> bool:
        token = self._tokens[index]
        if token.kind in (Kind.TEXT, Kind.OTHER):
            return token.is_complete
        if not self._is_xml:
            if is_inline_name(token.name):
                return True
            if token.name in _BLOCK or token.kind is Kind.CONTENT:
                return False
        return index in self._inline


def _matching_ends(tokens: Sequence[MarkupToken], void: Collection[str]) -> dict[int, int]:
    """The end tag of each start tag that has one, by index: the next of its name that is free."""
    starts: defaultdict[str, list[int]] = defaultdict(list)
    ends = {}
    for index, token in enumerate(tokens):
        if token.kind is Kind.START and token.name not in void:
            starts[token.name].append(index)
        elif token.kind is Kind.END and starts[token.name]:
            ends[starts[token.name].pop()] = index
    return ends


def _inline_elements(
    tokens: Sequence[MarkupToken], ends: dict[int, int], blocks: Collection[str]
) -> set[int]:
    """The indices of tags of elements that have text beside them, or an inline parent.

    Args:
        tokens: the document's tokens.
        ends: the index of each end tag by that of its start tag, as from `_matching_ends`.
        blocks: names of elements whose kind is known, and that are left out.
    """
    parents: list[int] = []  # of each token; -1 for the document
    with_text: set[int] = set()
    path = [-1]
    open_ends = {end: start for start, end in ends.items()}
    for index, token in enumerate(tokens):
        if index in open_ends:
            while path[-1] >= open_ends[index]:
                path.pop()
            parents.append(path[-1])
            continue
        parents.append(path[-1])
        if token.kind is Kind.TEXT and not token.raw.isspace():
            with_text.add(path[-1])
        if index in ends:
            path.append(index)
    inline: set[int] = set()
    for index, token in enumerate(tokens):
        if token.kind is Kind.TEXT or token.name in blocks:
            continue
        if parents[index] in with_text or parents[index] in inline:
            inline.add(index)
            if index in ends:
                inline.add(ends[index])
    return inline


def is_inline_name(name: str) -> bool:
    """Whether elements of this name are inline in HTML."""
    return name in _INLINE or name in _INLINE_VERBATIM


def is_copied_name(name: str) -> bool:
    """Whether inline elements of this name are copied with their content in HTML."""
    return name in _INLINE_VERBATIM


def decode(raw: str, *, is_xml: bool) -> Iterator[Chars | Atom]:
    """Text with its entities decoded, each a part of its own.

    An entity that XML does not define without a document type is copied like a tag.
    """
    start = 0
    for match in (_XML_ENTITY if is_xml else _ENTITY).finditer(raw):
        if start < match.start():
            yield _plain(raw[start : match.start()])
        start = match.end()
        entity = match[0]
        is_known = entity[1] == "#" or not is_xml or entity in _XML_ENTITIES
        text = html.unescape(entity) if is_known else ""
        if not is_known or not text or (not text.isprintable() and not text.isspace()):
            yield Atom(entity)
        else:
            yield Chars(text.translate(_LINE_BREAKS), entity)
    if start < len(raw):
        yield _plain(raw[start:])


def _plain(raw: str) -> Chars:
    return Chars(raw.translate(_LINE_BREAKS), raw)


def encode(text: str) -> str:
    """Text with escapes, as it is written between tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

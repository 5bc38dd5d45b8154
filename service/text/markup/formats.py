"""The formats of documents: how each is parsed, and how text is written in it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from service.text.markup import markdown_inline
from service.text.markup.document import Document
from service.text.markup.html_parser import encode, parse_markup
from service.text.markup.markdown_parser import parse_markdown
from service.text.options import LineBreaks, MimeType, TextOptions


@dataclass(frozen=True)
class Format:
    """A format of documents.

    Attributes:
        parse: divides a document into parts.
        encode: escapes a part of a translation for the document.
        begin: escapes the beginning of a translated run, where it would be markup otherwise.
        reserved: names that no placeholder may have, since a glossary puts them into translations.
    """

    parse: Callable[[str], Document]
    encode: Callable[[str], str]
    begin: Callable[[str], str] = str
    reserved: frozenset[str] = frozenset()


def format_of(options: TextOptions) -> Format:
    """The format of a request's documents, which are not plain text."""
    reserved = options.glossary.placeholders
    if options.mime_type is MimeType.MARKDOWN:
        return Format(parse_markdown, markdown_inline.encode, markdown_inline.begin_line, reserved)
    parse = functools.partial(
        parse_markup,
        is_xml=options.mime_type is MimeType.XML,
        ignore_tags=options.ignore_tags,
        keeps_lines=options.line_breaks is LineBreaks.KEEP,
    )
    return Format(parse, encode, reserved=reserved)

"""Parses the inline markup of Markdown: emphasis, links, code, and inline HTML."""

from __future__ import annotations

import functools
import re
import string
from collections import deque
from collections.abc import Collection, Iterator, Sequence

from service.text.markup.document import Atom, Chars, EndTag, Item, StartTag, Verbatim
from service.text.markup.html_parser import decode, is_copied_name, is_inline_name

# No part can repeat over what it begins with, and parts that can run to the end of a text have a
# limit. The first characters of all come first: ten times as fast where there is none of them.
_TOKEN = re.compile(
    r"""
    (?=[\\`<!\[\]*_~&\n]|http) (?:
      (?P<escape>\\[!-/:-@\[-`{-~])
    | (?P<code>`++)
    | (?P<auto><(?:[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]{0,2000}+
                |[^\s<>@/!?]{1,100}@[^\s<>]{1,200})>)
    | (?P<comment><!--)
    | (?P<tag></?[A-Za-z][A-Za-z0-9-]*+(?:[^<>"'\n]|"[^"<>]{0,2000}+"|'[^'<>]{0,2000}+'){0,500}+>)
    | (?P<note>\[\^[^\]\s]{1,100}\])
    | (?P<opens>!?\[)
    | (?P<closes>\](?:
          \(\s*+(?:<[^<>\n]{0,2000}+>|(?:[^()\s\\]|\\.|\([^()\s]{0,500}+\)){0,2000}+)
            (?:\s++(?:"[^"]{0,1000}+"|'[^']{0,1000}+'|\([^()]{0,1000}+\)))?\s*+\)
        | \[[^\[\]]{0,200}+\]
      )?)
    | (?P<emphasis>\*++|_++|~~)
    | (?P<entity>&(?:\#[0-9]{1,7}|\#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});)
    | (?P<url>https?://[^\s<>()\[\]*`]{1,2000})
    | (?P<newline>\n)
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_MAX_COMMENT = _MAX_ELEMENT = 2_000  # characters
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_MAX_LABEL_ITEMS = 20
_SPACES = {ord(c): " " for c in "\t\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}
_SPECIAL = re.compile(
    r"[\\\[\]|]|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<!\s)[*`~]|[*`~](?!\s)"
    r"|(?<![^\W_])_(?!\s)|(?<!\s)_(?![^\W_])"
)
_LINE_START = re.compile(
    r"(\s*)(?:(\d{1,9})([.)])(?=\s|\Z)|(>|:(?=::|[ \t])|[-+=](?=[-+=\s]|\Z)|\#(?=\#*(?:\s|\Z))))"
)


# Escaped brackets around whole lines, which would make them a formula.
_FORMULA = re.compile(r"\A(\s*)\\\[(?=(?:(?!\\\]).)*+\\\][ \t.,;]*+(?:\n|\Z))", re.DOTALL)


def label_of(text: str) -> str:
    """The name of a link's definition, as names are compared."""
    return " ".join(text.split()).casefold()


def encode(text: str) -> str:
    """Plain text with escapes, as it is written in Markdown."""
    return _SPECIAL.sub(lambda match: "&amp;" if match[0] == "&" else "\\" + match[0], text)


def begin_line(text: str) -> str:
    """The run, with a beginning that would make it an item, heading, rule or formula escaped."""

    def escaped(match: re.Match[str]) -> str:
        space, number, dot, mark = match.groups()
        return f"{space}\\{mark}" if mark else f"{space}{number}\\{dot}"

    text = _FORMULA.sub(r"\1&#91;", text, count=1)
    return _LINE_START.sub(escaped, text, count=1) if _LINE_START.match(text) else text


def parse_inline(text: str, breaks: Sequence[str], labels: Collection[str]) -> Iterator[Item | str]:
    """The items of a paragraph; a str is a block.

    Args:
        text: the paragraph, with a line break for each of `breaks`.
        breaks: line breaks as in the document, each with the markup that begins the next line.
        labels: labels of the links that the document defines.
    """
    remaining = iter(breaks)
    for item in _Inline(text, labels).items():
        if "\n" in (item if isinstance(item, str) else item.raw):
            yield _with_breaks(item, remaining)
        else:
            yield item


def _with_breaks(item: Item | str, breaks: Iterator[str]) -> Item | str:
    raw = item if isinstance(item, str) else item.raw
    raw = re.sub("\n", lambda _: next(breaks), raw)
    match item:
        case str():
            return raw
        case Chars():
            return Chars(item.text, raw)
        case StartTag() | EndTag():
            return type(item)(raw, item.name)
        case _:
            return type(item)(raw)


class _Inline:
    def __init__(self, text: str, labels: Collection[str]) -> None:
        self._text = text
        self._labels = labels
        self._items: list[Item | str] = []
        # Emphasis and links that are open: the index of the item, and its markers.
        self._open: list[tuple[int, str]] = []
        self._num_links = 0
        self._backticks: dict[int, deque[int]] = {}
        for match in re.finditer("`+", text):
            self._backticks.setdefault(len(match[0]), deque()).append(match.start())

    def items(self) -> Sequence[Item | str]:
        text, start, position = self._text, 0, 0
        while match := _TOKEN.search(text, position):
            position = match.end()
            if match.lastgroup != "comment" or self._comment_end(match) > 0:
                self._add_text(text[start : match.start()])
                start = position = self._add(match)
        self._add_text(text[start:])
        return self._items

    def _add(self, match: re.Match[str]) -> int:
        """Add a token; the position after it."""
        raw, items = match[0], self._items
        match match.lastgroup:
            case "escape":
                items.append(Chars(raw[1], raw))
            case "code":
                return self._add_code(match)
            case "auto" | "url":
                items.append(Verbatim(raw))
            case "comment":
                end = self._comment_end(match)
                items.append(Atom(self._text[match.start() : end]))
                return end
            case "note":
                items.append(Atom(raw))
            case "tag":
                return self._add_tag(match)
            case "opens":
                self._num_links += 1
                self._open.append((len(items), raw))
                items.append(Chars(raw, raw))
            case "closes":
                self._close_link(raw)
            case "emphasis":
                self._add_emphasis(match)
            case "entity":
                items += decode(raw, is_xml=False)
            case _:
                items.append(Chars(" ", raw))
        return match.end()

    def _add_text(self, text: str) -> None:
        if text:
            self._items.append(Chars(text.translate(_SPACES), text))

    def _add_code(self, match: re.Match[str]) -> int:
        places = self._backticks.get(len(match[0]), deque())
        while places and places[0] < match.end():
            places.popleft()
        if not places:
            self._items.append(Chars(match[0], match[0]))
            return match.end()
        end = places[0] + len(match[0])
        self._items.append(Verbatim(self._text[match.start() : end]))
        return end

    def _comment_end(self, match: re.Match[str]) -> int:
        """The end of a comment; a negative number if it does not end within the limit.

        Not by the pattern, which would compare each of the characters with the end.
        """
        limit = match.end() + _MAX_COMMENT + len("-->")
        found = self._text.find("-->", match.end(), limit)
        return found + len("-->") if found >= 0 else found

    def _add_tag(self, match: re.Match[str]) -> int:
        raw = match[0]
        name = re.sub(r"\W.*", "", raw.lstrip("</"), flags=re.DOTALL).lower()
        is_copied = is_copied_name(name) and raw[1] != "/" and not raw.endswith("/>")
        if is_copied and (end := self._element_end(name, match.end())):
            self._items.append(Verbatim(self._text[match.start() : end]))
            return end
        if not is_inline_name(name):
            self._items.append(raw)
        elif raw.startswith("</"):
            self._items.append(EndTag(raw, name))
        else:
            self._items.append(Atom(raw) if raw.endswith("/>") else StartTag(raw, name))
        return match.end()

    @functools.cached_property
    def _lower(self) -> str:
        """The text with ASCII in lower case: other letters can change their number."""
        return self._text.translate(_LOWER)

    def _element_end(self, name: str, start: int) -> int:
        """The end of an element that is copied; 0 if it does not end within the limit."""
        closing, end = f"</{name}>", start
        num_open = 1
        while num_open:
            found = self._lower.find(closing, end, start + _MAX_ELEMENT)
            if found < 0:
                return 0
            num_open += self._lower.count(f"<{name}", end, found) - 1
            end = found + len(closing)
        return end

    def _close_link(self, raw: str) -> None:
        """End the link or image that began last, if this ends one."""
        if not self._num_links:
            self._add_text(raw)
            return
        index, marker = self._open.pop()
        while marker[-1] != "[":
            index, marker = self._open.pop()
        self._num_links -= 1
        content = self._items[index + 1 :] if len(self._items) - index < _MAX_LABEL_ITEMS else []
        label = "".join(_raw(item) for item in content)
        if raw not in ("]", "][]"):
            self._items[index] = StartTag(marker, "[")
            self._items.append(EndTag(raw, "["))
        elif label_of(label) in self._labels:  # its text is the name of its definition
            del self._items[index:]
            self._items.append(Verbatim(f"{marker}{label}{raw}"))
        else:
            self._add_text(raw)

    def _add_emphasis(self, match: re.Match[str]) -> None:
        """Close emphasis that this character opened, as far as the delimiters last, or open it."""
        raw, text = match[0], self._text
        before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
        within = raw[0] == "_" and before.isalnum() and after.isalnum()
        if before and not before.isspace() and not within:
            while raw and self._open:
                index, marker = self._open[-1]
                if marker[0] != raw[0] or len(marker) > len(raw):
                    break
                self._open.pop()
                self._items[index] = StartTag(marker, marker)
                self._items.append(EndTag(marker, marker))
                raw = raw[len(marker) :]
        if raw:
            if after and not after.isspace() and not within and len(raw) <= 3:
                self._open.append((len(self._items), raw))
            self._items.append(Chars(raw, raw))


def _raw(item: Item | str) -> str:
    return item if isinstance(item, str) else item.raw

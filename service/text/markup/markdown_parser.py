"""Parses Markdown into blocks and runs: a paragraph, a heading, an item or a cell is a run.

Blocks are recognised line by line, as far as translation needs them (CommonMark, with tables, front
matter and footnotes): what is code, what begins a line, and what ends a sentence.
"""

from __future__ import annotations

import re

from service.text.markup.builder import DocumentBuilder
from service.text.markup.document import Document, MarkupError
from service.text.markup.html_parser import MAX_TAGS
from service.text.markup.markdown_inline import label_of, parse_inline

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_NOTE = r"\[\^[^\]\s]{1,100}\]:"  # a footnote's text follows
_PREFIX = re.compile(
    r"[ \t]*+(?:>[ \t]*+|[-*+][ \t]++(?:\[[ xX]\][ \t]++)?|\d{1,9}[.)][ \t]++|#{1,6}[ \t]++"
    r"|[:~][ \t]++"  # of a definition
    r"|(?:[a-z]|[ivx]{2,6}|[IVX]{2,6})[.)][ \t]++|\([a-z\d]{1,3}\)[ \t]++"  # a. b) (iv)
    rf"|{_NOTE}[ \t]*+)*+"
)
_FENCE = re.compile(r"[ \t]*+(?:>[ \t]*+|[-*+][ \t]++|\d{1,9}[.)][ \t]++)*+(`{3,}+|~{3,}+)")
# A line of nothing else is a rule, or stands below a heading or the head of a table.
_RULE = " \t>|:=*_+-"
_TABLE_RULE = re.compile(r"[ \t>]*+\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-*+:?[ \t]*+)*+\Z")
_DEFINITION = re.compile(rf"[ \t>]*+(?!{_NOTE})\[([^\]\n]++)\]:")
# A line by itself: the kind of an alert or a callout, the place of a table of contents, attributes,
# and commands of templates. The title of a callout is text.
_ALERT = re.compile(r"[ \t]*+>[ \t>]*+\[![\w/-]{1,40}\][-+]?[ \t]*+")
_ALONE = re.compile(
    r"""[ \t>]*+(?: \[\[?_?TOC_?\]\]? | \{:?[^{}%\n]{0,200}\} | \{%[^\n]{0,400}%\}
    | \{\{[^\n]{0,400}\}\} )[ \t]*+\Z""",
    re.VERBOSE | re.IGNORECASE,
)
# An admonition, whose title is text; its content is indented.
_ADMONITION = re.compile(r'[ \t>]*+(?:!!!|\?\?\?\+?|===)[ \t]++(?:[\w -]{0,100}(?="|\Z))"?')
# Formulas in lines of their own, by how each begins and ends.
_MATH = re.compile(
    r"[ \t>]*+(?:[-*+][ \t]++|\d{1,9}[.)][ \t]++)?(\$\$|\\\[|\\begin\{[A-Za-z*]{1,40}\})"
)
# Attempts to find the end of a formula, each of which can read the rest of its paragraph.
_MAX_UNCLOSED = 100
_MATH_ENDS = {"$$": "$$", "\\[": "\\]"}
_DIRECTIVE = re.compile(r"[ \t>]*+:::")
_RAW_HTML = re.compile(r"[ \t]{0,3}<(script|pre|style|textarea|!--)(?=[\s>]|)", re.IGNORECASE)
_HARD_BREAK = re.compile(r"(?: {2,}+|\\)?\r?\n?\Z")
_CODE_INDENT = 4


def parse_markdown(text: str) -> Document:
    """The parts of a document.

    Raises:
        MarkupError: there is too much markup.
    """
    return _MarkdownParser(text).parse()


class _MarkdownParser:
    def __init__(self, text: str) -> None:
        self._lines: list[str] = _LINE.findall(text)
        self._builder = DocumentBuilder(has_controls=True)
        self._labels = {
            label_of(match[1]) for line in self._lines if (match := _DEFINITION.match(line))
        }
        # The paragraph so far: a line break stands for each of the breaks.
        self._paragraph: list[str] = []
        self._breaks: list[str] = []
        self._in_list = self._in_table = False
        self._after_blank = True
        self._indent = 0  # of the text of the item in which a line stands
        self._num_items = self._num_unclosed = 0

    def parse(self) -> Document:
        index = self._front_matter()
        while index < len(self._lines):
            index = self._verbatim(index) or self._line(index)
        self._end_paragraph()
        return self._builder.finish()

    def _front_matter(self) -> int:
        if not self._lines or self._lines[0].rstrip() not in ("---", "+++"):
            return 0
        for index in range(1, len(self._lines)):
            if self._lines[index].rstrip() in (self._lines[0].rstrip(), "..."):
                self._copy(0, index + 1)
                return index + 1
        return 0

    def _verbatim(self, index: int) -> int:
        """Copy code or raw HTML that begins here; the index of the next line, or 0."""
        line = self._lines[index]
        if fence := _FENCE.match(line):
            return self._copy(index, self._fence_end(index, fence[1]))
        if (math := _MATH.match(line)) and (end := self._math_end(index, math)):
            return self._copy(index, end)
        if html := _RAW_HTML.match(line):
            closing = "-->" if html[1] == "!--" else f"</{html[1].lower()}"
            end = index
            while end < len(self._lines) and closing not in self._lines[end].lower():
                end += 1
            return self._copy(index, end + 1)
        if self._after_blank and line.strip():
            if not self._in_list:
                self._indent = 0
            code = self._indent + _CODE_INDENT
            end = index
            while end < len(self._lines) and _indent(self._lines[end]) >= code:
                end += 1
            if end == index:
                return 0
            self._copy(index, end)
            self._after_blank = True
            return end
        return 0

    def _fence_end(self, index: int, fence: str) -> int:
        for end in range(index + 1, len(self._lines)):
            line = self._lines[end].strip().lstrip("> \t")
            if line.startswith(fence) and not line.strip(fence[0]):
                return end + 1
        return len(self._lines)

    def _math_end(self, start: int, math: re.Match[str]) -> int:
        """The line after a formula; 0 if there is none, since text follows it or it has no end."""
        if self._num_unclosed >= _MAX_UNCLOSED:
            return 0
        closing = _MATH_ENDS.get(math[1]) or math[1].replace("begin", "end")
        position = math.end()
        for index in range(start, len(self._lines)):
            line = self._lines[index]
            if not line.strip("> \t\r\n"):
                break
            found = line.find(closing, position)
            if found >= 0:
                is_alone = not line[found + len(closing) :].strip(" \t\r\n.,;")
                return index + 1 if is_alone else 0
            position = 0
        self._num_unclosed += 1
        return 0

    def _copy(self, start: int, end: int) -> int:
        self._end_paragraph()
        self._builder.block("".join(self._lines[start:end]))
        self._after_blank = False
        return end

    def _line(self, index: int) -> int:
        line = self._lines[index]
        body = line.rstrip("\r\n")
        if not body.strip("> \t"):
            self._copy(index, index + 1)
            self._after_blank, self._in_table = True, False
            return index + 1
        if not body.strip(_RULE) or _DEFINITION.match(body) or _DIRECTIVE.match(body):
            self._in_table |= _TABLE_RULE.match(body) is not None and "|" in body
            return self._copy(index, index + 1)
        if _ALONE.match(body):
            return self._copy(index, index + 1)
        if alert := _ALERT.match(body) or _ADMONITION.match(body):
            self._titled(line, body, alert.end())
            return index + 1
        prefix = _PREFIX.match(body)
        assert prefix is not None, "the pattern matches nothing as well"
        if self._after_blank and not prefix[0]:
            self._in_list = False
        if self._in_table or self._is_table_head(index):
            self._in_table = "|" in body
            self._end_paragraph()
            self._cells(line, body)
        else:
            self._text(line, body, prefix[0])
        self._after_blank = False
        return index + 1

    def _titled(self, line: str, body: str, start: int) -> None:
        """Add the first line of an alert or an admonition, with the title that it may have."""
        self._end_paragraph()
        self._builder.block(body[:start])
        title = body[start:].rstrip('" \t')
        self._add_items(title, [])
        self._builder.block(body[start + len(title) :] + line[len(body) :])
        self._after_blank, self._in_list = False, not body.lstrip().startswith(">")
        self._indent = _indent(body) + _CODE_INDENT

    def _is_table_head(self, index: int) -> bool:
        if "|" not in self._lines[index] or index + 1 == len(self._lines):
            return False
        below = self._lines[index + 1].rstrip("\r\n")
        return "-" in below and _TABLE_RULE.match(below) is not None

    def _cells(self, line: str, body: str) -> None:
        for part in re.findall(r"(?:[^|\\`]++|\\.?|`[^`|]*`|`)++|\|", body):
            if part == "|":
                self._builder.block(part)
            else:
                self._add_items(part, [])
        self._builder.block(line[len(body) :])

    def _text(self, line: str, body: str, prefix: str) -> None:
        """Add a line of a paragraph, an item or a heading."""
        markers = prefix.strip("> \t")
        if markers or not self._paragraph:
            self._end_paragraph()
            self._builder.block(prefix)
        else:
            self._breaks[-1] += prefix
        if markers:
            self._in_list = not markers.startswith("#")
            self._indent = _width(prefix)
        elif self._after_blank:  # of an item around the last one
            self._indent = min(self._indent, _indent(line))
        ending = _HARD_BREAK.search(line, max(len(prefix), len(body) - 100))
        assert ending is not None, "the pattern matches nothing as well"
        self._paragraph.append(line[len(prefix) : ending.start()])
        if markers.startswith("#") or ending[0].strip("\r\n"):
            self._end_paragraph()
            self._builder.block(ending[0])
        else:
            self._breaks.append(ending[0])

    def _end_paragraph(self) -> None:
        if not self._paragraph:
            return
        breaks = self._breaks
        last = breaks.pop() if len(breaks) == len(self._paragraph) else ""
        text, self._paragraph, self._breaks = "\n".join(self._paragraph), [], []
        self._add_items(text, breaks)
        self._builder.block(last)

    def _add_items(self, text: str, breaks: list[str]) -> None:
        for item in parse_inline(text, breaks, self._labels):
            self._num_items += 1
            if self._num_items > 2 * MAX_TAGS:
                raise MarkupError(f"more than {MAX_TAGS:,} tags, the limit")
            if isinstance(item, str):
                self._builder.block(item)
            else:
                self._builder.add(item)


def _width(text: str) -> int:
    return len(text.expandtabs(4))


def _indent(line: str) -> int:
    return _width(line[: len(line) - len(line.lstrip(" \t"))])

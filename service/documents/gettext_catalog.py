"""Catalogues of GNU gettext (.po): empty and fuzzy messages are translated.

Only the lines of these messages change, so that a diff shows nothing else; a library that writes
the whole file again would wrap all lines in its own way.
https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html
"""

from __future__ import annotations

import html
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from service.documents.document import DocumentLimits, DocumentSegment, bad_document
from service.documents.encodings import UTF_8_NAMES, DecodedText, decode
from service.text.options import MimeType

_KEYWORD = re.compile(r'\s*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d\])?)\s*"')
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*+)"')
_BYTES = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3}))")
_ESCAPE = re.compile(rf"(?P<bytes>(?:{_BYTES.pattern})+)|\\(?P<other>.)", re.DOTALL)
# Line breaks and tabs divide a message, also where it is HTML for its placeholders.
_DIVIDERS = {ord("\n"): "<br>", ord("\t"): "<hr>"}
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
# Escapes of a string; each of its line breaks also ends a line of the file.
_QUOTED = str.maketrans(
    {text: f"\\{code}" for code, text in _ESCAPED.items()}
    | {"\n": "\\n\n", "\\": "\\\\", '"': '\\"', "\0": "\\000"}
)
_CHARSET = re.compile(r"charset=([\w.:-]{1,40})", re.IGNORECASE)
# Placeholders of C, Python, Qt, shells and templates, except "% d", as in "50 % discount".
_PLACEHOLDER = re.compile(
    r"%(?:\d{1,2}\$)?[-+#0]{0,3}\d{0,4}(?:\.\d{1,3})?(?:hh|h|ll|l|z|j|t|L)?[diouxXeEfFgGcsrap@]"
    r"|%%|%\([A-Za-z_]\w{0,60}\)[-+#0]?\d{0,3}[a-zA-Z]|%L?\d{1,2}\b|%n\b"
    r"|\$?\{[A-Za-z0-9_.:,!-]{0,80}\}|\{\{[^{}\n]{1,80}\}\}|\$[A-Za-z_]\w{0,60}"
)
# The marker of an access key: before a word ("&Open", "_Open"), or within one, before a letter in
# lower case ("E&xit", "Pr_int"). Not an entity ("&amp;"), a name in code ("file_name"), a parameter
# of a URL, "R&D" or "M&Ms".
_ACCESS_KEY = re.compile(
    r"(?<![\w&=?/.#])(?P<begun>[^\W\d_]{0,3})(?P<marker>[&_])(?=[^\W\d_]{2})(?!\w+;)"
)
# Words of a message in which "_" is a marker within a word, or before a word in lower case.
_MAX_WORDS_WITHIN, _MAX_WORDS_BEFORE = 2, 5
_WIDTH = 76


@dataclass
class _Message:
    """A message.

    Attributes:
        start: number of its first line.
        strings: strings by keyword, in pieces, with their escapes.
        lines: lines of each keyword, from the first to one past the last.
        flags_line: number of the line of its flags; None if it has none.
        is_fuzzy: whether it has the flag "fuzzy".
    """

    start: int
    strings: dict[str, list[str]] = field(default_factory=dict)
    lines: dict[str, tuple[int, int]] = field(default_factory=dict)
    flags_line: int | None = None
    is_fuzzy: bool = False

    def text(self, keyword: str) -> str:
        # Joined first: the bytes of a character can stand in two pieces.
        return _ESCAPE.sub(_unescaped, "".join(self.strings.get(keyword, ())))

    @property
    def targets(self) -> list[str]:
        return [keyword for keyword in self.lines if keyword.startswith("msgstr")]


class GettextCatalog:
    """A catalogue.

    Raises:
        InvalidArgumentError: the file is not a catalogue, not in UTF-8, or exceeds a limit.
    """

    def __init__(self, data: bytes, limits: DocumentLimits) -> None:
        self._decoded: DecodedText = decode(data, limits)
        # A line ends as in a file: U+2028 and form feeds are characters of a string.
        self._lines = list(io.StringIO(self._decoded.text, newline=""))
        self._header: _Message | None = None
        # With the keyword, the source, and its segment; None for a source without letters.
        self._targets: list[tuple[_Message, str, str, DocumentSegment | None]] = []
        self._segments: list[DocumentSegment] = []
        is_catalogue = not self._decoded.text.strip()
        for entry in _entries(self._lines):
            is_catalogue = True
            if entry.text("msgid"):
                self._add(entry)
                limits.check_segments(len(self._segments))
            elif self._header is None:
                self._header = entry
        if not is_catalogue:
            raise bad_document("has no msgid: it is no gettext catalogue")
        self._check_charset()
        self.segments: Sequence[DocumentSegment] = self._segments

    def _add(self, entry: _Message) -> None:
        """Add the segments of a message."""
        targets = entry.targets
        if all(map(entry.text, targets)) and not entry.is_fuzzy:
            return
        sources = [entry.text("msgid"), entry.text("msgid_plural")]
        if not sources[0].strip():
            return
        segments = [_segment(each) if any(map(str.isalpha, each)) else None for each in sources]
        for keyword in targets:
            is_plural = keyword not in ("msgstr", "msgstr[0]")
            segment = segments[is_plural]
            self._targets.append((entry, keyword, sources[is_plural], segment))
            if segment is not None:
                self._segments.append(segment)

    def _check_charset(self) -> None:
        found = _CHARSET.search(self._header.text("msgstr")) if self._header else None
        known = (*UTF_8_NAMES, "us-ascii", "ascii", "charset")  # a template has CHARSET
        if found and found[1].lower() not in known and not self._decoded.text.isascii():
            raise bad_document(f"is in {found[1]}, by its header: convert it to UTF-8")

    def _name_charset(self, changes: dict[int, tuple[int, list[str]]]) -> None:
        """Set the charset of the header to UTF-8, since translations need not be ASCII."""
        header = self._header
        if header is None or "msgstr" not in header.lines:
            return
        text = header.text("msgstr")
        found = _CHARSET.search(text)
        if found and found[1].lower() not in UTF_8_NAMES:
            start, end = header.lines["msgstr"]
            named = text[: found.start(1)] + "UTF-8" + text[found.end(1) :]
            lines = _quoted("msgstr", named)
            changes[start] = (end, [line + self._ending(start) for line in lines])

    def _ending(self, index: int) -> str:
        """The line break of a line; a line feed for a last line without one."""
        line = self._lines[index]
        return line[len(line.rstrip("\r\n")) :] or "\n"

    def write(self, translations: Sequence[str]) -> bytes:
        """Write the file with these texts; a translation without its placeholders is fuzzy."""
        changes: dict[int, tuple[int, list[str]]] = {}
        fuzzy: dict[int, bool] = {}
        entries: dict[int, _Message] = {}
        remaining = iter(translations)
        for entry, keyword, source, segment in self._targets:
            found = source if segment is None else _plain(next(remaining), segment)
            if segment is not None and (key := _access_key(source)) is not None:
                found = _with_access_key(found, source[key], source[key + 1])
            if _placeholders(source) != _placeholders(found):
                fuzzy[entry.start] = True
            fuzzy.setdefault(entry.start, False)
            entries[entry.start] = entry
            start, end = entry.lines[keyword]
            ending = self._ending(start)
            # gettext demands the source's line breaks at the beginning and at the end.
            space = source[: len(source) - len(source.lstrip())], source[len(source.rstrip()) :]
            lines = _quoted(keyword, found.strip().join(space))
            changes[start] = (end, [line + ending for line in lines])
        for start, is_fuzzy in fuzzy.items():
            self._set_fuzzy(entries[start], is_fuzzy, changes)
        if not all(map(str.isascii, translations)):
            self._name_charset(changes)
        written, index = [], 0
        while index < len(self._lines):
            end, lines = changes.get(index, (index + 1, [self._lines[index]]))
            written += lines
            index = end
        return self._decoded.encode("".join(written))

    def _set_fuzzy(
        self, entry: _Message, is_fuzzy: bool, changes: dict[int, tuple[int, list[str]]]
    ) -> None:
        """Change the flags, and remove the previous message of a fuzzy translation."""
        if entry.is_fuzzy == is_fuzzy:
            return
        line = entry.flags_line
        if line is None:
            start = min(start for start, _ in entry.lines.values())
            end, lines = changes.get(start, (start + 1, [self._lines[start]]))
            ending = lines[0][len(lines[0].rstrip("\r\n")) :]
            changes[start] = (end, [f"#, fuzzy{ending}", *lines])
            return
        before = self._lines[line]
        ending = before[len(before.rstrip("\r\n")) :]
        flags = [flag.strip() for flag in before[2:].split(",") if flag.strip()]
        flags = ["fuzzy", *flags] if is_fuzzy else [flag for flag in flags if flag != "fuzzy"]
        changes[line] = (line + 1, [f"#, {', '.join(flags)}{ending}"] if flags else [])
        if not is_fuzzy:
            for index in range(entry.start, min(start for start, _ in entry.lines.values())):
                if self._lines[index].startswith("#|"):
                    changes[index] = (index + 1, [])


def _entries(lines: Sequence[str]) -> Iterator[_Message]:
    """Yield the messages of a file; obsolete ones (#~) are comments."""
    entry, keyword = _Message(0), ""
    for index, line in enumerate(lines):
        stripped = line.strip()
        if found := _KEYWORD.match(line):
            if found[1] in ("msgctxt", "msgid") and entry.targets:
                yield entry
                entry = _Message(index)
            keyword, rest = found[1], line[found.end() - 1 :]
            if keyword in entry.lines:
                raise bad_document(f"line {index + 1:,}: a second {keyword} in one message")
            entry.strings[keyword] = [_unquoted(rest, index)]
            entry.lines[keyword] = (index, index + 1)
        elif stripped.startswith('"') and keyword:
            entry.strings[keyword].append(_unquoted(line, index))
            entry.lines[keyword] = (entry.lines[keyword][0], index + 1)
        elif not stripped or stripped.startswith("#"):
            if entry.targets:
                yield entry
                entry = _Message(index)
            keyword = ""
            if stripped.startswith("#,"):
                entry.flags_line = index
                entry.is_fuzzy = "fuzzy" in re.split(r"[,\s]+", stripped[2:])
        else:
            raise bad_document(f"line {index + 1:,} is neither a message nor a comment")
    if entry.targets:
        yield entry
    elif entry.lines:
        raise bad_document("ends inside of a message")


def _unquoted(text: str, index: int) -> str:
    text = text.strip()
    found = _STRING.match(text)
    if found is None:
        raise bad_document(f"line {index + 1:,}: a string without a quotation mark at its end")
    if found.end() < len(text):
        raise bad_document(
            f"line {index + 1:,}: something behind a string: each keyword needs a line of its own"
        )
    return found[1]


def _unescaped(match: re.Match[str]) -> str:
    if other := match["other"]:
        return _ESCAPED.get(other, other)
    found = _BYTES.finditer(match["bytes"])
    codes = bytes(int(each[1], 16) if each[1] else int(each[2], 8) & 0xFF for each in found)
    try:
        return codes.decode()
    except UnicodeDecodeError:
        return codes.decode("latin-1")


def _quoted(keyword: str, text: str) -> list[str]:
    """The lines of a string, broken at its line breaks and after about 76 characters."""
    pieces: list[str] = []
    for line in text.translate(_QUOTED).split("\n"):
        current = ""
        for word in re.findall(r"\S*\s*", line):
            if current and len(current) + len(word) > _WIDTH:
                pieces.append(current)
                current = ""
            current += word
        if current:
            pieces.append(current)
    if len(pieces) <= 1:
        return [f'{keyword} "{"".join(pieces)}"']
    return [f'{keyword} ""', *(f'"{piece}"' for piece in pieces)]


def _access_key(source: str) -> int | None:
    """Position of the marker of a message's access key; None without one, or with several."""
    found = [*_ACCESS_KEY.finditer(source)]
    num_words = len(source.split()) if found else 0
    found = [each for each in found if _is_access_key(each, num_words)]
    if len(found) != 1:
        return None
    place = found[0].start("marker")
    is_one = source.count(source[place]) == 1 and not _in_placeholder(source, place)
    return place if is_one else None


def _is_access_key(found: re.Match[str], num_words: int) -> bool:
    source, begun, letter = found.string, found["begun"], found.string[found.end()]
    if found["marker"] == "&":
        return not begun or letter.islower()
    if begun:
        return begun.istitle() and letter.islower() and num_words <= _MAX_WORDS_WITHIN
    return letter.isupper() or (source[:1].isupper() and num_words <= _MAX_WORDS_BEFORE)


def _in_placeholder(text: str, place: int) -> bool:
    return any(each.start() <= place < each.end() for each in _PLACEHOLDER.finditer(text))


def _with_access_key(text: str, marker: str, letter: str) -> str:
    """Put the marker before the same letter of a translation or, without one, the first letter."""
    same = (found.start() for found in re.finditer(re.escape(letter), text, re.IGNORECASE))
    first = (place for place, character in enumerate(text) if character.isalpha())
    inside = bytearray(len(text))
    for each in _PLACEHOLDER.finditer(text):
        inside[each.start() : each.end()] = b"\1" * len(each[0])
    for place in itertools.chain(same, first):
        if not inside[place]:
            return text[:place] + marker + text[place:]
    return text


def _segment(source: str) -> DocumentSegment:
    """The segment of a message. Placeholders become code, which the translation copies.

    The marker of an access key is removed, because the model would read it as a letter.
    """
    if (key := _access_key(source)) is not None:
        source = source[:key] + source[key + 1 :]
    source = source.strip()
    found = list(_PLACEHOLDER.finditer(source))
    if not found:
        return DocumentSegment(source)
    pieces, end = [], 0
    for each in found:
        pieces.append(html.escape(source[end : each.start()], quote=False))
        pieces.append(f"<code>{html.escape(each[0], quote=False)}</code>")
        end = each.end()
    pieces.append(html.escape(source[end:], quote=False))
    return DocumentSegment("".join(pieces).translate(_DIVIDERS), MimeType.HTML)


def _plain(text: str, segment: DocumentSegment) -> str:
    if not segment.is_html:
        return text
    for character, tag in _DIVIDERS.items():
        text = text.replace(tag, chr(character))
    return html.unescape(text.replace("<code>", "").replace("</code>", ""))


def _placeholders(text: str) -> Counter[str]:
    return Counter(_PLACEHOLDER.findall(text))

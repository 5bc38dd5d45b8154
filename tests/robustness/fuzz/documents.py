"""Documents: files of each format, damaged, with wrong sizes, nested, or of another format."""

from __future__ import annotations

import dataclasses
import random
import re
import struct
import zipfile
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from service.calls.backend import DOCUMENT_LIMITS as LIMITS
from service.documents.document import Document, DocumentSegment
from service.documents.formats import READERS, read_document
from service.documents.tmx import read_tmx
from service.errors import InvalidArgumentError
from service.memory import tmx
from service.memory.pairs import TextPair
from tests.robustness.fuzz.markup import document_of
from tests.robustness.fuzz.mutations import (
    WORDS,
    changed_bytes,
    changed_text,
    odd_text,
    random_bytes,
)
from tests.robustness.fuzz.target import expect
from tests.robustness.fuzz.xml_changes import DEEP, xml_changed, xml_flood
from tests.unit.service.documents.samples import (
    CATALOGUE,
    ODT_CONTENT,
    SUBTITLES,
    XLIFF_1,
    XLIFF_2,
    zipped,
)

# The texts that are written here may be packed better than those that were read.
_LIMITS_OF_WRITTEN = dataclasses.replace(LIMITS, max_ratio=10 * LIMITS.max_ratio)
_HUGE_SHARE = 0.0005
_OTHERS = tuple(READERS)

_WORD = """\
<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>\
<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>A heading</w:t></w:r></w:p>\
<w:p><w:r><w:t xml:space="preserve">This is </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>bo</w:t>\
</w:r><w:r><w:rPr><w:b/></w:rPr><w:t>ld</w:t></w:r><w:r><w:tab/><w:br/><w:t>text.</w:t></w:r>\
<w:hyperlink><w:r><w:t>a link</w:t></w:r></w:hyperlink><w:ins><w:r><w:t>new</w:t></w:r></w:ins>\
<w:del><w:r><w:delText>old</w:delText></w:r></w:del></w:p>\
<w:tbl><w:tr><w:tc><w:p><w:r><w:t>Cell one</w:t></w:r></w:p></w:tc></w:tr></w:tbl>\
<w:p><w:r><w:fldChar w:fldCharType="begin"/><w:instrText>PAGE</w:instrText>\
<w:fldChar w:fldCharType="end"/></w:r></w:p><w:sectPr/></w:body></w:document>"""
_OPEN_TYPE = "application/vnd.oasis.opendocument.text"
_LINES = (
    "00:00:01,000 --> 00:00:02,000", "-->", "99:99:99,999 --> 0", "\n\n", "- ", "{\\an8}", "<i>",
    'msgid "a"', 'msgid ""', 'msgstr ""', 'msgstr[0] "', 'msgstr[99] ""', 'msgid_plural "b"',
    'msgctxt "c"', '"\\n"', '"\\x"', "#, fuzzy", "#~ ", "#| ", "# ", "\\", '"', "charset=latin-1",
    "1\n", "\r\n", "\r",
)  # fmt: skip


_TMX = (
    '<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx version="1.4">'
    '<header srclang="en"/><body><tu><note>x</note><tuv xml:lang="en"><seg>A <bpt i="1">x</bpt> '
    'dog.</seg></tuv><tuv xml:lang="de-AT"><seg>Ein <hi>Hund</hi>.</seg></tuv>'
    '<tuv lang="fr"><seg> </seg></tuv></tu></body></tmx>'
)


class _Documents:
    """Files of one format."""

    name: ClassVar[str]
    share: ClassVar[float]
    what: ClassVar[str]
    extension: ClassVar[str]
    stays: ClassVar[bool] = True  # whether texts are replaced; otherwise, their translations added

    def generate(self, rng: random.Random) -> tuple[str, bytes]:
        """Generate a file; rarely a flood, random bytes, or a file of another format."""
        file_name = f"a{self.extension}"
        kind = rng.random()
        if kind < _HUGE_SHARE:
            return file_name, self._flood(rng)
        if kind < 0.02:
            return file_name, random_bytes(rng)
        if kind < 0.04:
            return f"a{rng.choice((*_OTHERS, '', '.exe', '.DOCX'))}", self._file(rng)
        data = self._file(rng)
        if kind < 0.25:
            data = changed_bytes(rng, data)
        if kind < 0.06:
            data = rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0")) + data
        return file_name, data

    def run(self, given: tuple[str, bytes]) -> str:
        """Read the file, write it as it is, and write it with other texts."""
        file_name, data = given
        try:
            document = read_document(file_name, data, LIMITS)
            segments = document.segments
            for segment in segments:
                expect(bool(segment.text), "a segment without text", given)
            texts = [segment.text for segment in segments]
            if self.stays:
                same = document.write(texts)
                expect(same == data, "an untranslated file changed", (file_name, data, same))
            changed = read_document(file_name, data, LIMITS)
            self._reread(file_name, changed.write([_changed(each) for each in segments]), changed)
        except InvalidArgumentError as exc:
            expect(exc.field in ("content", "file_name"), "a refusal of another field", given)
            expect(bool(exc.description), "a refusal without a reason", given)
            return "refused"
        return "written" if segments else "no text"

    def _reread(self, file_name: str, written: bytes, before: Document) -> None:
        """Check that the written file has the right format."""
        try:
            read_document(file_name, written, _LIMITS_OF_WRITTEN)
        except InvalidArgumentError as exc:
            expect(False, "what was written can't be read", (str(exc), written))

    def _file(self, rng: random.Random) -> bytes:
        raise NotImplementedError

    def _flood(self, rng: random.Random) -> bytes:
        raise NotImplementedError


class _TextFiles(_Documents):
    samples: ClassVar[Sequence[str]]
    signs: ClassVar[Sequence[str]] = _LINES

    def _file(self, rng: random.Random) -> bytes:
        text = rng.choice(self.samples)
        if rng.random() < 0.8:
            text = changed_text(rng, text, self.signs)
        if rng.random() < 0.1:
            parts = (rng.choice((*self.signs, *WORDS)) for _ in range(rng.randint(1, 30)))
            text = rng.choice(("", "\n", " ")).join(parts)
        encoding = rng.choice(("utf-8",) * 18 + ("utf-16", "utf-8-sig"))
        return text.encode(encoding, "surrogatepass")

    def _flood(self, rng: random.Random) -> bytes:
        unit = "".join(rng.choice((*self.signs, "a", " ", "\n")) for _ in range(rng.randint(1, 4)))
        return (unit * (1_000_000 // len(unit))).encode()


class PlainTexts(_TextFiles):
    """Files .txt."""

    name: ClassVar[str] = "txt"
    share: ClassVar[float] = 2
    what: ClassVar[str] = "documents .txt: read, written unchanged and changed"
    extension: ClassVar[str] = ".txt"
    samples: ClassVar[Sequence[str]] = ("A text.\n\nAnother one.\r\nIts second line.\n", "", " \n")


class Pages(_TextFiles):
    """Files .html."""

    name: ClassVar[str] = "html-file"
    share: ClassVar[float] = 4
    what: ClassVar[str] = "documents .html, likewise"
    extension: ClassVar[str] = ".html"
    samples: ClassVar[Sequence[str]] = ("",)

    def _file(self, rng: random.Random) -> bytes:
        return document_of(rng, is_markdown=False).encode("utf-8", "replace")

    def _flood(self, rng: random.Random) -> bytes:
        tag = rng.choice(
            ("<b>", "<p>", "<x>", "</b>", "<b", "<!--", "<a href='", "&amp;", "<i></i>")
        )
        return (tag * DEEP + "text").encode()


class SubtitleFiles(_TextFiles):
    """Files .srt."""

    name: ClassVar[str] = "srt"
    share: ClassVar[float] = 3
    what: ClassVar[str] = "documents .srt, likewise"
    extension: ClassVar[str] = ".srt"
    samples: ClassVar[Sequence[str]] = (SUBTITLES,)


class Catalogues(_TextFiles):
    """Files .po."""

    name: ClassVar[str] = "po"
    share: ClassVar[float] = 4
    what: ClassVar[str] = "documents .po, likewise"
    extension: ClassVar[str] = ".po"
    samples: ClassVar[Sequence[str]] = (CATALOGUE,)
    stays: ClassVar[bool] = False


class XliffFiles(_TextFiles):
    """Files .xliff."""

    name: ClassVar[str] = "xliff"
    share: ClassVar[float] = 4
    what: ClassVar[str] = "documents .xliff, likewise: entity bombs, 100,000 levels"
    extension: ClassVar[str] = ".xliff"
    samples: ClassVar[Sequence[str]] = (XLIFF_1, XLIFF_2)
    stays: ClassVar[bool] = False

    def _file(self, rng: random.Random) -> bytes:
        return xml_changed(rng, rng.choice(self.samples)).encode("utf-8", "replace")

    def _flood(self, rng: random.Random) -> bytes:
        return xml_flood(rng, rng.choice(self.samples))


class TmxFiles(XliffFiles):
    """Files .tmx, whose pairs are written and read again."""

    name: ClassVar[str] = "tmx"
    share: ClassVar[float] = 2
    what: ClassVar[str] = "translation memories .tmx: read, written and read again"
    extension: ClassVar[str] = ".tmx"
    samples: ClassVar[Sequence[str]] = (_TMX,)

    def run(self, given: tuple[str, bytes]) -> str:
        """Read the pairs of the file, write them, and read them again."""
        try:
            pairs = _pairs(given[1])
        except InvalidArgumentError as exc:
            expect(exc.field == "content", "a refusal of another field", given)
            return "refused"
        again = _pairs(tmx.HEAD + tmx.tmx_units(pairs) + tmx.TAIL)
        expect(again == pairs, "other pairs are read again", (given, pairs, again))
        return "pairs" if pairs else "no pair"


def _pairs(data: bytes) -> list[TextPair]:
    return [pair for batch in read_tmx(data, LIMITS, ("", "")).batches() for pair in batch]


class _Archives(_Documents):
    """Zip files: their parts are changed, or the archive around them."""

    def _parts(self, rng: random.Random) -> dict[str, str]:
        raise NotImplementedError

    def _file(self, rng: random.Random) -> bytes:
        parts: dict[str, bytes] = {}
        for name, text in self._parts(rng).items():
            changed = xml_changed(rng, text) if text.startswith("<") else text
            parts[name] = changed.encode("utf-8", "replace")
        if rng.random() < 0.1:
            name = rng.choice(list(parts))
            parts[rng.choice(("../" + name, "/etc/x", name.upper(), "a/" * 100, "x\0y"))] = (
                parts.pop(name) if rng.random() < 0.5 else b"x"
            )
        data = zipped(parts, rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)))
        return _lying(rng, data) if rng.random() < 0.15 else data

    def _flood(self, rng: random.Random) -> bytes:
        [(name, text)] = [
            (name, text) for name, text in self._parts(rng).items() if text.startswith("<")
        ][:1]
        parts = {key: value.encode() for key, value in self._parts(rng).items()}
        kind = rng.randrange(4)
        if kind == 0:  # a bomb
            parts[name] = b"<a/>" * rng.choice((10_000, 1_000_000, 10_000_000))
        elif kind == 1:
            parts.update({f"part{number}": b"" for number in range(rng.choice((4_000, 10_000)))})
        else:
            parts[name] = xml_flood(rng, text)
        return zipped(parts, zipfile.ZIP_DEFLATED)


class WordFiles(_Archives):
    """Files .docx."""

    name: ClassVar[str] = "docx"
    share: ClassVar[float] = 5
    what: ClassVar[str] = "documents .docx, likewise: damaged archives, zip and entity bombs"
    extension: ClassVar[str] = ".docx"

    def _parts(self, rng: random.Random) -> dict[str, str]:
        parts = {"word/document.xml": _WORD, "[Content_Types].xml": "<Types/>"}
        if rng.random() < 0.3:
            head = _WORD.replace("w:document", "w:hdr").replace("w:body>", "w:p>")
            parts["word/header1.xml"] = head
        return parts


class OpenFiles(_Archives):
    """Files .odt."""

    name: ClassVar[str] = "odt"
    share: ClassVar[float] = 5
    what: ClassVar[str] = "documents .odt, likewise"
    extension: ClassVar[str] = ".odt"

    def _parts(self, rng: random.Random) -> dict[str, str]:
        kind = _OPEN_TYPE if rng.random() < 0.95 else odd_text(rng, 2)
        return {"mimetype": kind, "content.xml": ODT_CONTENT, "Pictures/a.png": "PNG"}


def _lying(rng: random.Random, data: bytes) -> bytes:
    """An archive with a changed number in its directory."""
    changed = bytearray(data)
    heads = [match.start() for match in re.finditer(rb"PK(?:\x01\x02|\x03\x04|\x05\x06)", data)]
    at = rng.choice(heads) + rng.randrange(4, 46)
    value = rng.choice((0, 1, 8, 99, 0xFFFF, 0xFFFFFFFF, rng.getrandbits(32)))
    form = rng.choice(("<H", "<I"))
    if at + 4 <= len(data):
        struct.pack_into(form, changed, at, value & (0xFFFF if form == "<H" else 0xFFFFFFFF))
    return bytes(changed)


def _changed(segment: DocumentSegment) -> str:
    """Another text with the same tags."""
    if not segment.is_html:
        return f"{segment.text}' <&>\" \\"
    pieces = re.split(r"(<[^<>]*>)", segment.text)
    return "".join(each if each.startswith("<") else each.replace("e", "é&amp;") for each in pieces)


TARGETS: Sequence[Callable[[], Any]] = (
    PlainTexts, Pages, SubtitleFiles, Catalogues, XliffFiles, TmxFiles, WordFiles, OpenFiles,
)  # fmt: skip

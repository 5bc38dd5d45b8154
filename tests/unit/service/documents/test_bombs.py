"""Files that could take far more memory than their size: read in linear time, or refused."""

from __future__ import annotations

import hashlib
import io
import time
import zipfile

import pytest
from lxml import etree

from service.documents.document import DocumentLimits
from service.documents.formats import read_document
from service.errors import InvalidArgumentError
from tests.unit.service.documents import samples
from tests.unit.service.documents.samples import LIMITS, odt, read, upper, zipped

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
TEXT = (
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" '
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
)
RUN = "<w:r><w:t>Word </w:t></w:r>"
TAB = "<w:r><w:tab/></w:r>"


def docx(body: str, headers: int = 0) -> bytes:
    parts = {f"word/header{number}.xml": f"<w:hdr {W}>{body}</w:hdr>" for number in range(headers)}
    main = f"<w:document {W}><w:body>{body}</w:body></w:document>"
    return zipped({"word/document.xml": main, **parts})


def open_text(body: str) -> bytes:
    return odt(f"<office:text {TEXT}>{body}</office:text>")


def xliff(units: str, attributes: str = "") -> bytes:
    return f'<xliff version="1.2"{attributes}>{units}</xliff>'.encode()


def unit(source: str, rest: str = "") -> str:
    return f"<trans-unit><source>{source}</source>{rest}</trans-unit>"


def message(text: str) -> bytes:
    return f'msgid "{text}"\nmsgstr ""\n'.encode()


def subtitle(text: str) -> bytes:
    return f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n".encode()


def nested(start: str, levels: int, inner: str, end: str) -> str:
    return start * levels + inner + end * levels


def refusal(name: str, data: bytes, limits: DocumentLimits = LIMITS) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        read(name, data, limits)
    assert caught.value.field == "content"
    return caught.value.description


# A text that takes much when it is written, too.
FORMAT = f"<w:rPr>{'<w:b/>' * 300}</w:rPr>"
NAMESPACES = "".join(f' xmlns:n{number}="urn:{number}"' for number in range(200))


@pytest.mark.parametrize(
    ("name", "data", "limits", "reason"),
    [
        ("a.docx", docx(f"<w:p>{RUN}</w:p>", 7), {"max_tags": 60}, "66 tags, the limit is 60"),
        (
            "a.docx",
            docx("<w:p a='1' b='2'/>", 7),
            {"max_attributes": 20},
            "attributes, the limit is 20",
        ),
        (
            "a.odt",
            open_text(nested("<text:list>", 99, "<text:p>a</text:p>" * 50, "</text:list>")),
            {"max_level_sum": 9_000},
            "10,100 levels of all elements together, the limit is 9,000",
        ),
        ("a.xlf", xliff(unit("a"), NAMESPACES), {}, "129 namespaces around an element, the limit"),
        (
            "a.xlf",
            xliff(unit("a"), f' xmlns:a="{"u" * 16_001}"'),
            {},
            "16,002 characters of namespaces around an element, the limit is 16,000",
        ),
        (
            "a.xlf",
            xliff(unit("a"), ' xmlns:a="urn:a" xmlns:b="urn:&#97;"'),
            {"max_nodes_with_two_prefixes": 5},
            "9 tags and attributes, with two prefixes for a namespace, the limit is 5",
        ),
        (
            "a.xlf",
            xliff(unit("<g " + "".join(f'a{number}=">" ' for number in range(300)) + "/>")),
            {},
            "300 attributes of one element, the limit is 256",
        ),
        (
            "a.docx",
            docx(f"<w:p><w:r><w:rPr>{'<w:b/>' * 1_001}</w:rPr><w:t>a</w:t></w:r></w:p>"),
            {},
            "1,001 elements and attributes in the format of one run, the limit is 1,000",
        ),
        (
            "a.docx",
            docx(f"<w:p><w:r><w:rPr><w:lang>{'<w:b/>' * 1_000}</w:lang></w:rPr></w:r></w:p>"),
            {},
            "1,001 elements and attributes in the format of one run, the limit is 1,000",
        ),
        (
            "a.docx",
            zipped({f"a{number}": b" " * 2**19 for number in range(40)}),
            {},
            "times its size, the limit is 200",
        ),
        ("a.txt", b"a\r\n\r\nb\r\n", {"max_lines": 2}, "3 lines, the limit is 2"),
        ("a.srt", subtitle("a") * 3, {"max_segments": 1}, "2 parts to translate, the limit is 1"),
        ("a.po", message("a") * 3, {"max_segments": 1}, "2 parts to translate, the limit is 1"),
        (
            "a.xlf",
            b'<?xml version="1.0" encoding="UTF-7"?>+ADw-xliff version+AD0-"1.2"/+AD4-',
            {},
            "is in 'UTF-7': convert it",
        ),
    ],
)
def test_each_limit_is_of_the_whole_file_and_named(
    name: str, data: bytes, limits: dict[str, int], reason: str
) -> None:
    assert reason in refusal(name, data, DocumentLimits(**limits))


def test_no_limit_is_near_what_documents_have() -> None:
    """A Word file of 500 pages, in elements, attributes and levels; in one part."""
    border = '<w:top w:val="single" w:sz="4" w:space="0" w:color="auto"/>'
    cell = f"<w:tc><w:tcPr><w:tcBorders>{border * 6}</w:tcBorders></w:tcPr><w:p/></w:tc>"
    namespaces = "".join(f' xmlns:n{number}="http://example.com/{number}"' for number in range(40))
    body = nested("<w:tbl><w:tr><w:tc>", 10, cell * 10_000, "</w:tc></w:tr></w:tbl>")
    main = f"<w:document {W}{namespaces}><w:body>{body}<w:p>{RUN}</w:p></w:body></w:document>"
    document = read("a.docx", zipped({"word/document.xml": main}, zipfile.ZIP_STORED))
    assert [segment.text for segment in document.segments] == ["Word "]


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16", "ISO-8859-1", "windows-1252", "us-ascii"])
def test_usual_encodings_are_read_and_written(encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?>' + xliff(unit("caf&#233;")).decode()
    document = read("a.xlf", text.encode(encoding))
    written = etree.fromstring(document.write(["ein Café"]))
    assert written.findtext(".//target") == "ein Café"


def elements_of(data: bytes) -> list[str]:
    root = etree.fromstring(zipfile.ZipFile(io.BytesIO(data)).read("word/document.xml"))
    return [str(element.tag).rpartition("}")[2] for element in root.iter()]


def test_the_format_of_a_run_that_stays_is_copied_by_neither_reading_nor_writing() -> None:
    run = f"<w:r>{FORMAT}{'<w:t>A</w:t><w:tab/>' * 200}</w:r>"
    data = docx(f"<w:p>{run}</w:p><w:p>{RUN}</w:p>")
    document = read("a.docx", data)
    texts = [segment.text for segment in document.segments]
    written = document.write([*texts[:-1], "other"])
    assert elements_of(written) == elements_of(data)


@pytest.mark.parametrize(
    ("body", "translation"),
    [
        (f"<w:p><w:r>{FORMAT}{'<w:t>A</w:t><w:tab/>' * 200}</w:r></w:p>", "{}!"),
        # A run's own attributes, and a long text in its format.
        (f"<w:p><w:r a='{'x' * 9_999}'>{'<w:t>A</w:t><w:tab/>' * 200}</w:r></w:p>", "{}!"),
        (
            f"<w:p><w:r><w:rPr>{'x' * 9_999}</w:rPr>{'<w:t>A</w:t><w:tab/>' * 200}</w:r></w:p>",
            "{}!",
        ),
        # Translations may put text of the main format between any two others.
        (
            f"<w:p><w:r>{FORMAT}<w:t>{'Main text ' * 99}</w:t></w:r>"
            + "<w:r><w:rPr><w:i/></w:rPr><w:t>a</w:t></w:r><w:r><w:footnoteReference/></w:r>" * 200
            + "</w:p>",
            "",
        ),
    ],
)
def test_copies_of_formats_have_limits(body: str, translation: str) -> None:
    limits = DocumentLimits(max_tags=20_000, max_unpacked_bytes=200_000)
    document = read("a.docx", docx(body), limits)
    texts = [segment.text for segment in document.segments]
    changed = [text.replace("<", "x<").replace("x</", "</") + "!" for text in texts]
    with pytest.raises(InvalidArgumentError, match=r"copied formats of its runs: .* the limit is"):
        document.write(changed)
    read("a.docx", docx(body)).write(changed)


def seconds_of(name: str, data: bytes) -> float:
    """Processor time of this thread for reading and writing; the least of two."""
    least = 60.0
    for _ in range(2):
        started = time.thread_time()
        document = read(name, data)
        document.write([f"{segment.text} !" for segment in document.segments])
        least = min(least, time.thread_time() - started)
    return least


NOTE, END_NOTE = "<text:note>", "</text:note>"
SEGMENT = '<mrk mtype="seg" mid="{}">'


@pytest.mark.parametrize(
    ("name", "small", "large", "factor"),
    [
        # Four times the size: quadratic work takes 16 times as long.
        ("a.po", message(" _Ab" * 1_000), message(" _Ab" * 4_000), 8),
        ("a.srt", subtitle("word " * 40_000), subtitle("word " * 160_000), 8),
        (
            "a.docx",
            docx(f"<w:p><w:r><w:rPr>{'<w:b/>' * 60}</w:rPr>{'<w:t>a</w:t>' * 300}</w:r></w:p>"),
            docx(f"<w:p><w:r><w:rPr>{'<w:b/>' * 240}</w:rPr>{'<w:t>a</w:t>' * 1_200}</w:r></w:p>"),
            8,
        ),
        (
            "a.docx",
            docx(f"<w:p>{RUN}<w:r><w:t>a</w:t><w:pict>{'<w:x/>' * 15_000}</w:pict></w:r></w:p>"),
            docx(f"<w:p>{RUN}<w:r><w:t>a</w:t><w:pict>{'<w:x/>' * 60_000}</w:pict></w:r></w:p>"),
            8,
        ),
        (
            "a.odt",
            open_text(f"<text:p>a{NOTE}{'<text:x/>' * 15_000}{END_NOTE}</text:p>"),
            open_text(f"<text:p>a{NOTE}{'<text:x/>' * 60_000}{END_NOTE}</text:p>"),
            8,
        ),
        # The same with one level, and with 200.
        (
            "a.docx",
            docx(f"<w:p><w:ins>{RUN * 4_000}{TAB}</w:ins></w:p>"),
            docx(f"<w:p>{nested('<w:ins>', 200, RUN * 4_000 + TAB, '</w:ins>')}</w:p>"),
            3,
        ),
        (
            "a.odt",
            open_text(f"<text:list>{'<text:p>a</text:p>' * 6_000}</text:list>"),
            open_text(nested("<text:list>", 200, "<text:p>a</text:p>" * 6_000, "</text:list>")),
            1.5,
        ),
        (
            "a.xlf",
            xliff(unit("a" + "b<x/>" * 10_000)),
            xliff(nested("<trans-unit><source>a", 100, "b<x/>" * 10_000, "</source></trans-unit>")),
            1.5,
        ),
        (
            "a.xlf",
            xliff(
                unit("a", f"<seg-source>{SEGMENT.format(1)}{'b<x/>' * 4_000}</mrk></seg-source>")
            ),
            xliff(
                unit(
                    "a",
                    "<seg-source>"
                    + "".join(map(SEGMENT.format, range(200)))
                    + "b<x/>" * 4_000
                    + "</mrk>" * 200
                    + "</seg-source>",
                )
            ),
            3,
        ),
        # A text that begins many comments, and one that begins none.
        ("a.md", b"a <!a-" * 20_000, b"a <!--" * 20_000, 8),
    ],
)
def test_time_is_linear(name: str, small: bytes, large: bytes, factor: float) -> None:
    assert seconds_of(name, large) < factor * seconds_of(name, small) + 0.15


def test_an_access_key_is_looked_for_once() -> None:
    """This holds for any number of its letters in placeholders."""
    document = read_document("a.po", message("_Open"), LIMITS)
    started = time.thread_time()
    written = document.write(["{oooooooooooooooooo}" * 5_000])
    assert written.count(b"_") == 1
    assert time.thread_time() - started < 5


FORMATTED = f"""<w:document {W} xmlns:r="urn:r"><w:body>
<w:p><w:pPr><w:jc w:val="left"/></w:pPr><w:r w:rsidR="1"><w:t>One </w:t></w:r><w:r><w:rPr><w:b/>
<w:lang w:val="en"/></w:rPr><w:t>bo</w:t><w:t>ld</w:t></w:r><w:r w:rsidR="2"><w:rPr><w:b/></w:rPr>
<w:t>er</w:t><w:tab/><w:t>text</w:t><w:br/></w:r><w:proofErr/><w:hyperlink r:id="r1" w:history="1">
<w:r><w:t>a link</w:t><w:footnoteReference w:id="1"/></w:r><w:smartTag><w:r><w:t> in it</w:t></w:r>
</w:smartTag></w:hyperlink><w:sdt><w:sdtContent><w:r><w:t>A field</w:t></w:r></w:sdtContent></w:sdt>
<w:ins w:id="1"><w:r><w:t>new</w:t><w:tab/><w:t>words</w:t></w:r></w:ins></w:p></w:body>
</w:document>"""
NAMESPACED = xliff(
    unit('a <g id="1" xmlns:e="urn:e" e:a="1">b <g id="2">c</g><ph xml:space="x">d</ph></g>')
    + unit("e", "<seg-source>" + SEGMENT.format(1) + "e<x/></mrk></seg-source><target>f</target>"),
    ' xmlns="urn:oasis:names:tc:xliff:document:1.2"',
)


@pytest.mark.parametrize(
    ("name", "data", "digest"),
    [
        ("a.docx", zipped({"word/document.xml": FORMATTED}), "0c3b8b41bfbe71c7"),
        ("a.odt", odt(), "f0233609d57ea68b"),
        ("a.xlf", samples.XLIFF_1.encode(), "fda112b474694df1"),
        ("a.xlf", samples.XLIFF_2.encode(), "60d2bb69cc67dc5b"),
        ("a.xlf", samples.XLIFF_SEGMENTS.encode(), "68182df903237812"),
        ("a.xlf", NAMESPACED, "9b7db3bd5c81e90d"),
        ("a.po", samples.CATALOGUE.encode(), "9284bf48600e3507"),
        ("a.srt", samples.SUBTITLES.encode(), "2bb9d25a2cff1169"),
        ("a.md", samples.MARKDOWN.encode(), "521f459e43d35820"),
    ],
)
def test_what_is_written_stays_the_same_to_the_byte(name: str, data: bytes, digest: str) -> None:
    """The bytes are compared with those written by version 0.2."""
    document = read(name, data)
    written = document.write(upper(document))
    if zipfile.is_zipfile(io.BytesIO(written)):
        archive = zipfile.ZipFile(io.BytesIO(written))
        written = b"".join(map(archive.read, archive.namelist()))
    assert hashlib.sha256(written).hexdigest()[:16] == digest

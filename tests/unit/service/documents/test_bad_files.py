"""Damaged, malicious and other files that can't be read: clear errors, bounded resources."""

from __future__ import annotations

import io
import re
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.documents.document import DocumentLimits
from service.documents.formats import READERS
from service.errors import InvalidArgumentError
from tests.robustness.fuzz.document_bombs import FRAMES, UNITS
from tests.unit.service.documents import samples
from tests.unit.service.documents.samples import LIMITS, read, word, zipped

WORD = word(samples.letter())
GOOD = {
    ".txt": b"A text.",
    ".html": b"<title>A dog</title><p class=x>A <b>dog</b> runs.",
    ".md": samples.MARKDOWN.encode(),
    ".srt": samples.SUBTITLES.encode(),
    ".po": samples.CATALOGUE.encode(),
    ".xlf": samples.XLIFF_1.encode(),
    ".docx": WORD,
    ".odt": samples.odt(),
}
WORD_NAMESPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def document_xml(body: str, doctype: str = "") -> bytes:
    content = f'{doctype}<w:document xmlns:w="{WORD_NAMESPACE}">{body}</w:document>'
    return zipped({"word/document.xml": content}, zipfile.ZIP_STORED)


def refusal(name: str, data: bytes, limits: DocumentLimits = LIMITS) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        read(name, data, limits)
    assert caught.value.field in ("content", "file_name")
    return caught.value.description


BOMB = """<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">{}]><x>&j;</x>""".format(
    "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefghi", "bcdefghij", strict=True)
    )
)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.exe", b"", "has an unsupported type: expected .txt, "),
        ("noname", b"", "has an unsupported type: expected"),
        ("a.txt", b"caf\xe9 noir", "is not UTF-8 at byte 4: convert it"),
        ("a.txt", b"\xff\xfea", "is not UTF-16-LE at byte 3"),
        ("a.txt", b"a\0b", "NUL"),
        ("a.srt", b"Just a text.", "no line of times"),
        ("a.po", b"Just a text.", "line 1 is neither"),
        ("a.po", b"# only a comment\n", "has no msgid"),
        ("a.po", b'msgid "a', "line 1: a string without"),
        ("a.po", b'msgid "a"\n', "ends inside of a message"),
        ("a.po", b'msgid "a"\nmsgid "b"\nmsgstr ""\n', "a second msgid"),
        (
            "a.po",
            'msgid ""\nmsgstr "charset=ISO-8859-1"\n\nmsgid "é"\nmsgstr ""\n'.encode(),
            "is in ISO-8859-1, by its header",
        ),
        ("a.xlf", b"<xliff", "no well-formed XML"),
        ("a.xlf", b"", "no well-formed XML"),
        ("a.xlf", b"<html/>", "no XLIFF file"),
        ("a.xlf", BOMB.encode(), "document type|entity"),
        (
            "a.xlf",
            b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><xliff version="1.2"/>',
            "document type",
        ),
        ("a.xlf", b"<a>" * 100_000, "[Dd]epth"),
        ("a.docx", b"PK, but nothing else", "no zip file, or cut off"),
        ("a.docx", WORD[: len(WORD) // 2], "no zip file, or cut off"),
        ("a.docx", samples.odt(), "has no part word/document.xml"),
        ("a.docx", zipped({"word/document.xml": "<a/>"}), "no part of a Word document"),
        ("a.docx", document_xml("<w:p>" * 100_000), r"word/document\.xml: .*[Dd]epth"),
        ("a.docx", document_xml("", BOMB.partition("<x>")[0][21:]), "document type|entity"),
        ("a.odt", WORD, "has no part mimetype"),
        ("a.odt", zipped({"mimetype": "text/plain"}), "type 'text/plain'"),
        (
            "a.docx",
            zipped({"word/document.xml": b" " * 30_000_000}),
            "times its size, the limit is",
        ),
        ("a.docx", zipped({str(i): "" for i in range(6_000)}), "6,000 parts, the limit is 5,000"),
        ("a.xlf", b"<x>" + b"<a/>" * 2_100_000 + b"</x>", "tags, the limit is 2,000,000"),
    ],
)
def test_the_error_says_what_is_wrong(name: str, data: bytes, reason: str) -> None:
    assert re.search(reason, refusal(name, data))


def test_limits_are_named() -> None:
    assert "7 bytes, the limit is 6" in refusal("a.txt", b"A text.", DocumentLimits(max_bytes=6))
    few = DocumentLimits(max_segments=1)
    assert "2 parts to translate, the limit is 1" in refusal("a.txt", b"A\n\nB", few)
    assert "bytes unpacked" in refusal("a.odt", samples.odt(), DocumentLimits(max_unpacked_bytes=9))


def test_a_zip_file_whose_directory_lies_is_refused() -> None:
    data = bytearray(zipped({"word/document.xml": "x" * 5_000}, zipfile.ZIP_STORED))
    entry = data.index(b"PK\x01\x02")
    for offset in (20, 24):  # both sizes in the directory
        data[entry + offset : entry + offset + 4] = struct.pack("<I", 10)
    assert "word/document.xml" in refusal("a.docx", bytes(data))


def test_an_encrypted_part_is_refused() -> None:
    data = bytearray(zipped({"word/document.xml": "x"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert refusal("a.docx", bytes(data)) == "is encrypted"


def test_an_external_entity_is_not_read() -> None:
    data = samples.XLIFF_1.replace(
        "<xliff", '<!DOCTYPE xliff [<!ENTITY e SYSTEM "file:///etc/passwd">]><xliff'
    ).replace("Hello", "&e;")
    assert "document type" in refusal("a.xlf", data.encode())


def test_good_files_and_document_bombs_have_all_formats() -> None:
    assert {READERS[extension] for extension in GOOD} == {*READERS.values()}
    assert {READERS[extension] for extension in FRAMES} == {*READERS.values()}
    assert FRAMES.keys() == UNITS.keys()


@pytest.mark.parametrize("name", GOOD)
@given(st.data())
def test_a_damaged_file_is_read_or_refused(name: str, data: st.DataObject) -> None:
    """Any other exception would be an INTERNAL error."""
    content = bytearray(GOOD[name])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    found = bytes(content[:cut] if data.draw(st.booleans()) else content)
    try:
        document = read(f"a{name}", found)
        written = document.write([segment.text + "!" for segment in document.segments])
    except InvalidArgumentError:
        return
    assert isinstance(written, bytes)


@pytest.mark.parametrize("name", READERS)
def test_an_empty_file_is_empty_or_refused(name: str) -> None:
    try:
        document = read(f"a{name}", b"")
    except InvalidArgumentError:
        assert name not in (".txt", ".md", ".markdown", ".srt", ".po", ".pot")
    else:
        assert document.write([]) == b""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "word " * 400_000),
        ("a.txt", "\n" * 500_000),
        ("a.txt", "a\n\n" * 90_000),
        ("a.md", "[" * 40_000),
        ("a.md", "*a " * 20_000),
        ("a.md", "> " * 500_000 + "a"),
        ("a.md", "|a" * 40_000 + "\n|-\n"),
        ("a.md", "a `" * 40_000),
        ("a.md", "[a]\n" * 20_000 + "\n[a]: b\n"),
        ("a.srt", "00:00:00,000 --> 00:00:00,000\n" + "<i" * 1_000_000),
        ("a.srt", "00:00:00,000 --> 00:00:00,000\n" + "{\\" * 1_000_000),
        ("a.po", 'msgid "' + "%" * 300_000 + 'a"\nmsgstr ""\n'),
        ("a.po", 'msgid "' + "{" * 1_000_000 + 'a"\nmsgstr ""\n'),
        ("a.po", 'msgid "a"\n' + '"b"\n' * 300_000 + 'msgstr ""\n'),
        ("a.po", 'msgid "a\\' * 1 + "\\" * 1_000_001 + '"\nmsgstr ""\n'),
        (
            "a.xlf",
            '<xliff version="1.2"><trans-unit><source>'
            + "a<x/>" * 60_000
            + "</source></trans-unit></xliff>",
        ),
    ],
)
def test_the_worst_of_a_few_megabytes_is_read_and_written(name: str, content: str) -> None:
    """Work is linear: quadratic work on these files would exceed the timeout of the tests."""
    document = read(name, content)
    document.write([segment.text + "!" for segment in document.segments])


def test_the_worst_word_documents_are_read_and_written() -> None:
    run = "<w:r><w:rPr><w:b/></w:rPr><w:t>a</w:t></w:r>"
    plain = "<w:r><w:t>b</w:t></w:r>"
    deep = "<w:hyperlink>" * 200 + plain + "</w:hyperlink>" * 200
    for body in (
        f"<w:p>{(run + plain) * 5_000}</w:p>",
        f"<w:p>{run}</w:p>" * 5_000,
        f"<w:p><w:r>{'<w:t>a</w:t><w:tab/>' * 10_000}</w:r></w:p>",
        f"<w:p>{deep * 50}</w:p>",
        f"<w:p>{'<w:r><w:pict><w:p>' * 80 + run + '</w:p></w:pict></w:r>' * 80}</w:p>" * 30,
    ):
        document = read("a.docx", document_xml(body))
        content = document.write([segment.text + "!" for segment in document.segments])
        assert zipfile.ZipFile(io.BytesIO(content)).testzip() is None

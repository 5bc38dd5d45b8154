"""Documents of Word and OpenDocument."""

from __future__ import annotations

import io
import re
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from tests.unit.service.documents import samples
from tests.unit.service.documents.samples import opened, read, texts, upper, word, written_in


def test_an_open_document_keeps_notes_frames_and_spans() -> None:
    document = read("a.odt", samples.odt())
    assert texts(document) == [
        "A heading",
        'Some <span id="0">bold</span> text<img id="1"> here.<img id="2">End',
        "The note",
        "In a box",
    ]
    written = zipfile.ZipFile(io.BytesIO(document.write(upper(document))))
    before = zipfile.ZipFile(io.BytesIO(samples.odt()))
    assert written.read("Pictures/a.png") == before.read("Pictures/a.png")
    root = etree.fromstring(written.read("content.xml"))
    shown = ["".join(each.itertext()) for each in root.iter("{*}p", "{*}h")]
    assert shown == [
        "A HEADING",
        "SOME BOLD TEXT1THE NOTE HERE.END",
        "THE NOTE",
        "12",
        "IN A BOX",
        "IN A BOX",
    ]
    [span] = root.iter("{*}span")
    assert (span.text, span.get(span.keys()[0])) == ("BOLD", "T1")


def test_tabs_and_line_breaks_of_an_open_document_end_a_text() -> None:
    name = 'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    whole = (
        '<text:p>Dear Tom,<text:line-break/><text:span text:style-name="T">The house<text:tab/>1'
        "</text:span></text:p>"
    )
    document = read("a.odt", samples.odt(f"<x {name}>{whole}</x>"))
    assert texts(document) == ['Dear Tom,<br id="0"><span id="1">The house<br id="2">1</span>']
    written = document.write(upper(document))
    content = zipfile.ZipFile(io.BytesIO(written)).read("content.xml").decode()
    assert content == f"<x {name}>{whole}</x>".replace("Dear Tom", "DEAR TOM").replace(
        "The house", "THE HOUSE"
    )


def test_neighbours_that_are_formatted_alike_are_one_on_every_level() -> None:
    span = '<text:span text:style-name="T">'
    inner = f"{span}a</text:span>{span}b</text:span>"
    name = 'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    whole = f"<text:p>{span}{inner}</text:span>{span}{inner}<text:s/></text:span></text:p>"
    data = samples.odt(f"<x {name}>{whole}</x>")
    document = read("a.odt", data)
    assert texts(document) == [
        '<span id="0"><span id="1">ab</span><span id="2">ab</span><img id="3"></span>'
    ]
    written = document.write(upper(document))
    content = zipfile.ZipFile(io.BytesIO(written)).read("content.xml").decode()
    assert content == (
        f"<x {name}><text:p>{span}{span}AB</text:span>{span}AB</text:span><text:s/></text:span>"
        "</text:p></x>"
    )


def test_word_keeps_formats_tabs_breaks_tables_heads_and_feet() -> None:
    data = word(samples.letter())
    document = read("a.docx", data)
    assert sorted(texts(document)) == sorted(
        [
            "A heading",
            'This is <span id="0">bold</span> and <span id="1">italic text</span>.',
            "After the tab",
            "After the break",
            "Cell one",
            "The header",
            "The footer",
        ]
    )
    found = opened(document.write(upper(document)))
    heading, paragraph = found.paragraphs[:2]
    assert (heading.text, heading.style and heading.style.name) == ("A HEADING", "Heading 1")
    assert paragraph.text == "THIS IS BOLD AND ITALIC TEXT.\tAFTER THE TAB\nAFTER THE BREAK"
    assert [run.text for run in paragraph.runs if run.bold] == ["BOLD"]
    assert [run.text for run in paragraph.runs if run.italic] == ["ITALIC TEXT"]
    assert [cell.text for cell in found.tables[0].rows[0].cells] == ["CELL ONE", "12"]
    assert found.sections[0].header.paragraphs[0].text == "THE HEADER"
    assert found.sections[0].footer.paragraphs[0].text == "THE FOOTER"


def test_word_moves_formats_with_the_words() -> None:
    document = read("a.docx", word(samples.letter()))
    changed = [
        'Das <span id="1">Kursive</span> und <span id="0">Fette</span>!'
        if text.startswith("This")
        else text
        for text in texts(document)
    ]
    paragraph = opened(document.write(changed)).paragraphs[1]
    assert [(run.text, run.bold, run.italic) for run in paragraph.runs if run.text.strip()][:5] == [
        ("Das ", None, None),
        ("Kursive", None, True),
        (" und ", None, None),
        ("Fette", True, None),
        ("!", None, None),
    ]


W = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)


def word_body(body: str) -> bytes:
    content = f"<w:document {W}><w:body>{body}</w:body></w:document>"
    return samples.zipped({"word/document.xml": content})


def body_of(data: bytes) -> str:
    content = zipfile.ZipFile(io.BytesIO(data)).read("word/document.xml").decode()
    return content.partition("<w:body>")[2].partition("</w:body>")[0]


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def test_word_keeps_links_fields_notes_and_the_text_of_boxes() -> None:
    field = (
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>PAGE</w:instrText></w:r>'
    )
    data = word_body(
        f"<w:p>{run('See ')}<w:hyperlink r:id='r1'>{run('the page')}</w:hyperlink>{run(' now')}"
        f"<w:r><w:footnoteReference w:id='2'/></w:r>{field}{run('Result')}</w:p>"
        f"<w:p><w:r><w:pict><w:txbxContent><w:p>{run('Boxed')}</w:p></w:txbxContent></w:pict></w:r>"
        f"<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>{run('Kept')}</w:p>"
    )
    document = read("a.docx", data)
    assert texts(document) == [
        'See <span id="0">the page</span> now<img id="1">',
        "Result",
        '<img id="0"><img id="1">Kept',
        "Boxed",
    ]
    written = body_of(document.write(upper(document)))
    assert written == (
        f'<w:p>{run("SEE ")}<w:hyperlink r:id="r1">{run("THE PAGE")}</w:hyperlink>{run(" NOW")}'
        f'<w:r><w:footnoteReference w:id="2"/></w:r>{field}{run("RESULT")}</w:p>'
        f"<w:p><w:r><w:pict><w:txbxContent><w:p>{run('BOXED')}</w:p></w:txbxContent></w:pict></w:r>"
        f"<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>{run('KEPT')}</w:p>"
    )


tags = st.lists(
    st.sampled_from(
        ['<span id="0">', '<span id="1">', '<img id="2">', '<img id="9">', "</span>", "a", "&lt;b"]
    ),
    max_size=12,
)


@given(tags)
def test_whatever_happens_to_the_tags_no_element_is_lost_or_doubled(pieces: list[str]) -> None:
    bold = "<w:r><w:rPr><w:b/></w:rPr><w:t>bold</w:t></w:r>"
    link = f"<w:hyperlink r:id='r1'>{run('link')}</w:hyperlink>"
    note = "<w:r><w:footnoteReference w:id='2'/></w:r>"
    document = read("a.docx", word_body(f"<w:p>{run('Some long text ')}{bold}{link}{note}</w:p>"))
    text = "".join(pieces)
    written = body_of(document.write([text]))
    root = etree.fromstring(f"<x {W}>{written}</x>")
    assert len([*root.iter("{*}hyperlink")]) == len([*root.iter("{*}footnoteReference")]) == 1
    assert "".join(root.itertext()) == text.replace("&lt;", "<") if "<" not in text else True
    assert "".join(root.itertext()) == "".join(
        {"a": "a", "&lt;b": "<b"}.get(piece, "") for piece in pieces
    )


def test_the_language_of_the_translation_is_named_for_spelling_checkers() -> None:
    data = word(samples.letter())
    document = read("a.docx", data)
    written = written_in("de", document, upper(document))
    codes, before = (
        re.findall(
            r'<w:lang [^>]*w:val="([^"]*)"',
            zipfile.ZipFile(io.BytesIO(each)).read("word/styles.xml").decode(),
        )
        for each in (written, data)
    )
    assert "en-US" in before
    assert codes == ["de-DE"] * len(before)
    unchanged = read("a.docx", data)
    assert written_in("de", unchanged, texts(unchanged)) == data


def test_an_open_document_names_the_language_of_the_translation() -> None:
    names = (
        'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" '
        'xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0" '
        'xmlns:fo="urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0"'
    )
    form = '<style:text-properties fo:language="{}" fo:country="{}"/>'
    none = form.format("none", "none")
    data = samples.odt(f"<x {names}>{form.format('en', 'US')}{none}<text:p>A dog</text:p></x>")
    document = read("a.odt", data)
    cases = [
        ("de", "de", "DE"),
        ("pt-BR", "pt", "BR"),
        ("sr-Latn-ME", "sr", "ME"),
        ("tlh", "tlh", "none"),
    ]
    for language, code, region in cases:
        written = written_in(language, read("a.odt", data), upper(document))
        content = zipfile.ZipFile(io.BytesIO(written)).read("content.xml").decode()
        assert content == (
            f"<x {names}>{form.format(code, region)}{none}<text:p>A DOG</text:p></x>"
        )


@pytest.mark.parametrize(("language", "name"), [("ja", "eastAsia"), ("he", "bidi"), ("de", "val")])
def test_word_checks_each_script_by_its_own_language(language: str, name: str) -> None:
    document = read("a.docx", word(samples.letter()))
    written = zipfile.ZipFile(io.BytesIO(written_in(language, document, upper(document))))
    found = re.findall(r"<w:lang [^>]*>", written.read("word/styles.xml").decode())
    assert found
    assert all(f'w:{name}="{language}-' in each for each in found)

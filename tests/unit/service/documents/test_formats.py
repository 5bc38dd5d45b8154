"""Every format: the texts are translated, and the rest of a file does not change."""

from __future__ import annotations

import html
import io
import re
import zipfile

import docx
import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from tests.unit.service.documents import samples
from tests.unit.service.documents.samples import opened, read, texts, upper, word

FILES = {
    "a.txt": b"One line.\r\nAnother.\r\n\r\n  Indented.\n\n\n",
    "a.srt": samples.SUBTITLES.encode(),
    "a.md": samples.MARKDOWN.encode(),
    "a.odt": samples.odt(),
    "a.docx": word(samples.letter()),
}


@pytest.mark.parametrize(
    ("source", "read_as", "translated", "written"),
    [
        ("E&xit the program", "Exit the program", "Programm beenden", "&Programm beenden"),
        ("Save &changes", "Save changes", "Änderungen speichern", "Änderungen spei&chern"),
        ("_Open", "Open", "Öffnen", "_Öffnen"),
        ("Pr_int %s", "Print %s", "%s drucken", "%s _drucken"),
        ("Save _as", "Save as", "Sichern als", "Sichern _als"),
        # No access keys.
        ("R&D, Q&A and file_name", None, "R&D", "R&D"),
        ("a &amp; b, my_name, %(my_name)s", None, "x %(my_name)s", "x %(my_name)s"),
        ("https://a.example/?b=c&dog=e", None, "x", "x"),
        ("&One or &Two", None, "Eins", "Eins"),
        ("Cut&Paste", None, "x", "x"),
        ("M&Ms are sweet", None, "x", "x"),
        ("Log_level is set", None, "x", "x"),
        ("the _id field", None, "x", "x"),
    ],
)
def test_access_keys_of_catalogues_are_kept(
    source: str, read_as: str | None, translated: str, written: str
) -> None:
    document = read("a.po", f'msgid "{source}"\nmsgstr ""\n')
    [text] = texts(document)
    assert re.sub("</?code>", "", html.unescape(text)) == (read_as or source)
    output = polib.pofile(document.write([translated]).decode())
    assert output[0].msgstr == written


@pytest.mark.parametrize("name", FILES)
def test_unchanged_texts_give_the_very_same_file(name: str) -> None:
    document = read(name, FILES[name])
    assert document.segments
    assert document.write(texts(document)) == FILES[name]


@given(st.text(alphabet=st.sampled_from("ab \n\r\t\f\u2028.1é"), max_size=80))
def test_any_text_is_written_as_it_was(text: str) -> None:
    document = read("a.txt", text)
    assert document.write(texts(document)) == text.encode()
    assert "".join(texts(document)).split() == text.split() or len(texts(document)) > 1


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("name", ["a.txt", "a.srt"])
def test_a_byte_order_mark_tells_the_encoding(name: str, codec: str) -> None:
    data = FILES[name].decode().encode(codec)
    document = read(name, data)
    assert document.write(texts(document)) == data
    changed = read(name, data).write(upper(document))
    assert changed.decode(codec) != FILES[name].decode()
    assert "ONE LINE." in changed.decode(codec) or "HELLO" in changed.decode(codec)


def test_of_markdown_only_text_changes() -> None:
    document = read("a.md", samples.MARKDOWN)
    assert texts(document) == [
        "A *short* heading",
        'Some text over\n> two lines with `code`, a [link](https://example.com/a "title") and '
        "[a name].\n\n[a name]: <>",
        "An item with **bold words**",
        "A box",
        "Name",
        "Value",
        "A cell",
    ]
    changed = [text.replace("A ", "Ein ").replace("two", "zwei") for text in texts(document)]
    written = document.write(changed).decode()
    before = samples.MARKDOWN.replace("# A ", "# Ein ").replace("two", "zwei")
    before = before.replace("A box", "Ein box").replace("A cell", "Ein cell")
    assert written == before


@given(st.text(alphabet=st.sampled_from("ab \n#>*_[]()`|-:.1!<>\\"), max_size=60))
def test_any_markdown_is_written_as_it_was(text: str) -> None:
    document = read("a.md", text)
    assert document.write(texts(document)).decode() == text


def test_subtitles_keep_times_positions_tags_speakers_and_numbers_of_lines() -> None:
    document = read("a.srt", samples.SUBTITLES)
    assert texts(document) == ["Hello <i>dear</i> big world", "- Who is it?", "- Me & you."]
    changed = ["Hallo <i>liebe</i> große und weite Welt", "- Wer ist da?", "- Ich & du."]
    written = document.write(changed).decode()
    assert written == samples.SUBTITLES.replace(
        "Hello <i>dear</i>\nbig world", "Hallo <i>liebe</i> große\nund weite Welt"
    ).replace("Who is it?", "Wer ist da?").replace("Me &", "Ich &").replace("you.", "du.")


@pytest.mark.parametrize(
    ("lines", "speeches"),
    [
        (["- I love you.", "- I know."], 2),
        (["<i>- I love you.</i>", "<i>- I know.</i>"], 2),
        (["<i>- I love you.", "- I know.</i>"], 2),
        (["{\\an8}- I love you.", "- I know."], 2),
        (['<font color="#fff">-I love you.</font>', "–I know."], 2),
        (["Do you love me?", "- I do."], 2),
        (["- I love you", "so much.", "- I know."], 2),
        ([">> I love you.", ">> I know."], 2),
        (["TOM: I love you.", "ANNA: I know."], 2),
        (["Tom Miller: I love you.", "Anna: I know."], 2),
        (["[Tom] I love you.", "(Anna) I know."], 2),
        (["I love you", "and the dog."], 1),
        (["He said: I love", "the dog."], 1),
        (["a well-", "known dog"], 1),
        (["I love you --", "and the dog."], 1),
    ],
)
def test_each_speaker_of_a_subtitle_has_lines_of_his_own(lines: list[str], speeches: int) -> None:
    head = "1\n00:00:01,000 --> 00:00:02,000\n"
    document = read("a.srt", head + "\n".join(lines) + "\n")
    assert len(texts(document)) == speeches
    written = document.write(upper(document)).decode().removeprefix(head)
    assert len(written.splitlines()) == len(lines)
    if len(lines) == speeches:
        plain = re.sub(r"<[^>]*>|[^A-Z\n]", "", written.upper())
        assert plain == re.sub(r"<[^>]*>|[^A-Z\n]", "", ("\n".join(lines) + "\n").upper())


@given(st.lists(st.sampled_from(["ab", "c", "<i>d</i>", "longer"]), min_size=1, max_size=20))
def test_subtitles_lose_no_word_when_they_are_wrapped(words: list[str]) -> None:
    head = "1\n00:00:01,000 --> 00:00:02,000\n"
    document = read("a.srt", f"{head}one <b>two</b>\nthree\nfour\n")
    written = document.write([" ".join(words)]).decode().removeprefix(head)
    assert written.split() == " ".join(words).split()
    assert len(written.splitlines()) <= 3


def test_of_a_catalogue_only_empty_and_fuzzy_messages_change() -> None:
    document = read("a.po", samples.CATALOGUE)
    assert texts(document) == [
        "Open <code>%s</code> now",
        "One file",
        "<code>%d</code> files",
        "Two lines",
    ]
    written = document.write(
        ["Öffne <code>%s</code>", "Eine Datei", "<code>%d</code> Dateien", 'Zwei\n"Zeilen"']
    ).decode()
    catalogue = polib.pofile(written)
    assert [(e.msgid, e.msgstr, e.flags) for e in catalogue if not e.msgid_plural] == [
        ("Open %s now\n", "Öffne %s\n", ["c-format"]),
        ("Done", "Fertig", []),
        ("Two lines", 'Zwei\n"Zeilen"', []),
        ("obsolete", "alt", []),
    ]
    [plural] = [entry for entry in catalogue if entry.msgid_plural]
    assert plural.msgstr_plural == {0: "Eine Datei", 1: "%d Dateien"}
    assert plural.msgctxt == "menu"
    assert "#| msgid" not in written
    for line in ("# A comment.", "#: a.c:1", '#~ msgid "obsolete"', 'msgstr "Fertig"'):
        assert line in written.splitlines()


@pytest.mark.parametrize(
    "charset", ["us-ascii", "ISO-8859-1", "CHARSET", "utf-8", "U\\TF", "as\\cii"]
)
def test_a_catalogue_with_umlauts_says_utf_8(charset: str) -> None:
    """A catalogue in ASCII, whatever its header says, is in UTF-8 afterwards."""
    header = f'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset={charset}\\n"\n\n'
    source = header + 'msgid "Open"\nmsgstr ""\n'
    written = read("a.po", source).write(["Öffne"])
    assert polib.pofile(written.decode()).metadata["Content-Type"].upper().endswith("=UTF-8")
    assert texts(read("a.po", written)) == []
    assert f"charset={charset}".encode() in read("a.po", source).write(["Auf"])


def test_control_characters_are_escaped_in_a_catalogue() -> None:
    text = 'A\fb\v"c"\b\td\\n\r\ne'
    written = read("a.po", b'msgid "Open"\nmsgstr ""\n').write([text]).decode()
    assert [entry.msgstr for entry in polib.pofile(written)] == [text]


@pytest.mark.parametrize("character", ["\f", "\v", "\x1c", "\x85", "\u2028", "\u2029"])
def test_only_a_line_break_ends_a_line_of_a_catalogue(character: str) -> None:
    source = f'msgid "One{character}two"\r\nmsgstr ""\r\n'
    document = read("a.po", source)
    assert texts(document) == [f"One{character}two"]
    written = document.write([f"Eins{character}zwei"])
    assert written.count(b"\r\n") == 2
    assert texts(read("a.po", written)) == []


def test_a_message_without_its_placeholders_is_fuzzy() -> None:
    source = 'msgid "Open %s"\nmsgstr ""\n\n#, c-format\nmsgid "In {name}"\nmsgstr ""\n'
    written = read("a.po", source).write(["Öffne", "In <code>{name}</code>"]).decode()
    first, second = polib.pofile(written)
    assert (first.fuzzy, second.fuzzy) == (True, False)
    assert second.flags == ["c-format"]


message = st.text(alphabet=st.sampled_from('aé\\"\n\t %{}sd'), min_size=1, max_size=200)


@given(message, message)
def test_other_programs_read_what_is_written_into_a_catalogue(source: str, text: str) -> None:
    entry = polib.POEntry(msgid=source)
    catalogue = polib.POFile()
    catalogue.append(entry)
    document = read("a.po", str(catalogue))
    if not document.segments:
        assert not any(map(str.isalpha, source))
        return
    [written] = polib.pofile(document.write([text]).decode())
    assert written.msgid == source
    if not document.segments[0].is_html:
        assert written.msgstr.strip() == text.strip()
        assert written.msgstr.startswith("\n") == source.startswith("\n") or not text.strip()


def test_xliff_1_gets_targets_with_a_state() -> None:
    document = read("a.xliff", samples.XLIFF_1)
    assert texts(document) == [
        'Hello <span id="0">dear</span> <img id="1">world &amp; all',
        'Press <img id="0">',
        "Again",
    ]
    changed = [
        '<img id="1">Hallo <span id="0">liebe</span> Welt',
        'Drücke <img id="0">',
        "Noch <einmal>",
    ]
    root = etree.fromstring(document.write(changed))
    units = {unit.get("id"): unit for unit in root.iter("{*}trans-unit")}
    targets = {name: unit.find("{*}target") for name, unit in units.items()}
    shown = {
        name: "".join(target.itertext()) if target is not None else None
        for name, target in targets.items()
    }
    assert shown == {
        "1": "Hallo liebe Welt",
        "2": "Fertig",
        "3": None,
        "4": "Drücke %s",
        "5": "Noch <einmal>",
        "6": "",
    }
    assert [child.tag.rpartition("}")[2] for child in targets["1"]] == ["x", "g"]
    assert targets["1"].get("state") == "needs-review-translation"
    assert targets["2"].attrib == {}
    # Without the targets, the file is what it was.
    source = etree.fromstring(samples.XLIFF_1.encode())
    for tree in (root, source):
        for target in [*tree.iter("{*}target")]:
            target.getparent().remove(target)
    assert etree.tostring(root, method="c14n") == etree.tostring(source, method="c14n")


@pytest.mark.parametrize("space", [' xmlns="urn:oasis:names:tc:xliff:document:1.2"', ""])
def test_targets_are_divided_into_the_segments_of_their_sources(space: str) -> None:
    data = samples.XLIFF_SEGMENTS.replace(' xmlns="urn:oasis:names:tc:xliff:document:1.2"', space)
    document = read("a.xlf", data)
    assert texts(document) == [
        *("One dog.", '<span id="0">Two</span> dogs.', "There.", "Up.", "A man. A child."),
    ]
    changed = ["Ein Hund.", 'Hunde, <span id="0">zwei</span>.', "Dort.", "Hoch.", "Ein Mann. Kind."]
    root = etree.fromstring(document.write(changed))
    shown = {}
    for unit in root.iter("{*}trans-unit"):
        target = unit.find("{*}target")
        etree.cleanup_namespaces(target)
        inner = etree.tostring(target, encoding="unicode", with_tail=False).partition(">")[2]
        shown[unit.get("id")] = inner.removesuffix("</target>"), target.get("state")
    new = "needs-review-translation"
    assert shown == {
        "1": (
            '<mrk mtype="seg" mid="a">Ein Hund.</mrk> <g id="9"><mrk mtype="seg" mid="b">Hunde, '
            '<g id="1">zwei</g>.</mrk></g> <mrk mtype="seg" mid="c">3.</mrk>',
            new,
        ),
        "2": ('<mrk mtype="seg" mid="0">Hier.</mrk> <mrk mtype="seg" mid="1">Dort.</mrk>', new),
        "3": ('<mrk mtype="seg" mid="0">Hoch.</mrk> <mrk mtype="seg" mid="1">Runter.</mrk>', new),
        "4": ("Alt. Fertig.", None),
        "5": ("Ein Mann. Kind.", new),
    }
    source = etree.fromstring(data.encode())
    for tree in (root, source):
        for target in [*tree.iter("{*}target")]:
            target.getparent().remove(target)
    assert etree.tostring(root, method="c14n") == etree.tostring(source, method="c14n")


def test_xliff_2_gets_targets_and_its_segments_a_state() -> None:
    document = read("a.xlf", samples.XLIFF_2)
    assert texts(document) == ['Hello <span id="0">dear</span> world']
    root = etree.fromstring(document.write(['Hallo <span id="0">liebe</span> Welt']))
    first, second, _ = root.iter("{*}segment")
    assert etree.tostring(first.find("{*}target"), method="text", with_tail=False) == (
        b"Hallo liebe Welt"
    )
    assert (first.get("state"), second.get("state")) == ("translated", "final")


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


def test_marks_of_notes_stand_above_the_line_in_all_formats() -> None:
    made = docx.Document()
    paragraph = made.add_paragraph("The moon is old")
    paragraph.add_run("1").font.superscript = True
    paragraph.add_run(" and H")
    paragraph.add_run("a").font.subscript = True
    paragraph.add_run("b").bold = True
    [text] = texts(read("a.docx", word(made)))
    assert text == (
        'The moon is old<sup id="0">1</sup> and H<sup id="1">a</sup><span id="2">b</span>'
    )
    changed = text.replace("old", "OLD")
    written = opened(read("a.docx", word(made)).write([changed]))
    [runs] = [each.runs for each in written.paragraphs if "OLD" in each.text]
    assert [(run.text, run.font.superscript) for run in runs][:2] == [
        ("The moon is OLD", None),
        ("1", True),
    ]
    span = '<text:span text:style-name="T9">'
    styles = (
        '<office:automatic-styles><style:style style:name="T9" style:family="text">'
        '<style:text-properties style:text-position="super 58%"/></style:style>'
        "</office:automatic-styles>"
    )
    line = f"<text:p>The moon is old{span}1</text:span> and cold.</text:p>"
    content = (
        '<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
        ' xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
        ' xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0">'
        f"{styles}<office:body><office:text>{line}</office:text></office:body>"
        "</office:document-content>"
    )
    [text] = texts(read("a.odt", samples.odt(content)))
    assert text == 'The moon is old<sup id="0">1</sup> and cold.'
    moved = read("a.odt", samples.odt(content)).write([text.replace("old", "OLD")])
    assert f"The moon is OLD{span}1</text:span>".encode() in samples_content(moved)
    unit = (
        '<xliff version="1.2"><file source-language="en" target-language="de"><body>'
        '<trans-unit id="1"><source>old<g id="1" ctype="x-sup">1</g> and <g id="2">b</g></source>'
        "</trans-unit></body></file></xliff>"
    )
    [text] = texts(read("a.xlf", unit))
    assert text == 'old<sup id="0">1</sup> and <span id="1">b</span>'


def samples_content(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read("content.xml")

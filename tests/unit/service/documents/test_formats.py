"""Every format: the texts are translated, and the rest of a file does not change."""

from __future__ import annotations

import io
import re
import zipfile

import docx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.service.documents import samples
from tests.unit.service.documents.samples import opened, read, texts, upper, word, written_in

FILES = {
    "a.txt": b"One line.\r\nAnother.\r\n\r\n  Indented.\n\n\n",
    "a.srt": samples.SUBTITLES.encode(),
    "a.md": samples.MARKDOWN.encode(),
    "a.odt": samples.odt(),
    "a.docx": word(samples.letter()),
}


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
        (["MAN 1: I love you.", "WOMAN 2: I know."], 2),
        (["TOM (on phone): I love you.", "ANNA: I know."], 2),
        (["I love the dog\\Nand you.", "And her."], 1),
        (["I love", "C:\\Notes and you."], 1),
        (["Meet me at six.", "[DOOR OPENS]"], 2),
        (["(sighs)", "I love you."], 2),
        (["<i>♪ La la ♪</i>", "What is it?"], 2),
        (["I love (the dog)", "and you."], 1),
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


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def test_line_breaks_within_a_line_of_a_subtitle_are_set_anew() -> None:
    head = "1\n00:00:01,000 --> 00:00:02,000\n"
    document = read("a.srt", head + "{\\an8}The dog\\Nis old.\nAnd grey.\n")
    assert texts(document) == ["The dog is old. And grey."]
    written = document.write(["Der alte Hund ist außerdem ganz grau."]).decode()
    assert written == head + "{\\an8}Der alte Hund\\Nist außerdem\nganz grau.\n"


@pytest.mark.parametrize(
    "declared",
    [
        "<meta charset=latin1>",
        "<meta name='a' charset='latin1'>",
        '<META http-equiv="Content-Type" content="text/html; charset=latin1">',
    ],
)
def test_a_page_of_ascii_declares_the_encoding_of_its_translation(declared: str) -> None:
    other = '<meta name=description content="with charset=latin1">'
    page = f"<head>{other}{declared}</head><p>A dog."
    assert read("a.html", page).write(["Ein Hund."]).decode() == page.replace("A dog", "Ein Hund")
    written = read("a.html", page).write(["Tür."]).decode()
    assert written == f"<head>{other}{declared.replace('latin1', 'utf-8')}</head><p>Tür."
    marked = read("a.html", page.encode("utf-8-sig")).write(["Tür."]).decode("utf-8-sig")
    assert marked == page.replace("A dog", "Tür")


def test_xhtml_of_ascii_declares_the_encoding_of_its_translation() -> None:
    page = '<?xml version="1.0" encoding="ISO-8859-1"?>\n<html><p>A dog.'
    written = read("a.html", page).write(["Tür."]).decode()
    assert written == page.replace("ISO-8859-1", "utf-8").replace("A dog", "Tür")


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


def test_a_page_that_names_its_language_names_the_translation_s() -> None:
    page = (
        '<!DOCTYPE html>\n<!--[if IE]> <html lang="en"> <![endif]-->'
        '<HTML title="a > b" lang="en-US" xml:lang=en><p lang="en">A dog'
    )
    document = read("a.html", page)
    written = written_in("de", document, ["Hund"]).decode()
    assert written == page.replace('lang="en-US" xml:lang=en', 'lang="de" xml:lang=de').replace(
        "A dog", "Hund"
    )
    assert written_in("de", read("a.html", page), ["A dog"]).decode() == page
    plain = read("a.html", "<html><p>A dog")
    assert written_in("de", plain, ["Hund"]) == b"<html><p>Hund"

"""Documents that tests build themselves, by other programs' writers where there are some."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence

import docx

from service.documents.document import Document, DocumentLimits, set_language
from service.documents.formats import read_document

LIMITS = DocumentLimits()

SUBTITLES = """\
1
00:00:01,000 --> 00:00:02,000
{\\an8}Hello <i>dear</i>
big world

2
00:00:03,000 --> 00:00:04,000
- Who is it?
- Me & you.

3
00:00:05,000 --> 00:00:06,000
1234
"""

MARKDOWN = """\
---
title: A title
---

# A *short* heading

Some text over
> two lines with `code`, a [link](https://example.com/a "title") and [a name].

```sh
echo "A dog"
```

1. An item with **bold words**
   - [ ] A box

| Name | Value |
| --- | :-: |
| A cell | `x` |

<pre>
Not this.
</pre>

[a name]: https://example.com/b
"""

CATALOGUE = """\
# A comment.
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#: a.c:1
#, fuzzy, c-format
#| msgid "Opened %s"
msgid "Open %s now\\n"
msgstr "Schließe %s\\n"

msgctxt "menu"
msgid "One file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

msgid "Done"
msgstr "Fertig"

msgid ""
"Two "
"lines"
msgstr ""

#~ msgid "obsolete"
#~ msgstr "alt"
"""

XLIFF_1 = """\
<?xml version='1.0' encoding='UTF-8'?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
  <file original="x" source-language="en" target-language="de" datatype="plaintext"><body>
    <trans-unit id="1">
      <source>Hello <g id="1">dear</g> <x id="2"/>world &amp; all</source>
    </trans-unit>
    <trans-unit id="2"><source>Done</source><target>Fertig</target></trans-unit>
    <trans-unit id="3" translate="no"><source>Keep</source></trans-unit>
    <trans-unit id="4"><source>Press <ph id="1">%s</ph></source><target/></trans-unit>
    <trans-unit id="5">
      <source>Again</source><target state="needs-translation">x</target>
    </trans-unit>
    <trans-unit id="6" approved="yes"><source>Fixed</source><target/></trans-unit>
  </body></file>
</xliff>
"""

XLIFF_SEGMENTS = """\
<?xml version='1.0' encoding='UTF-8'?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
  <file original="x" source-language="en" target-language="de" datatype="plaintext"><body>
    <trans-unit id="1">
      <source>One dog. <g id="1">Two</g> dogs. 3.</source>
      <seg-source>\
<mrk mtype="seg" mid="a">One dog.</mrk> <g id="9"><mrk mtype="seg" mid="b"><g id="1">Two</g> dogs.\
</mrk></g> <mrk mtype="seg" mid="c">3.</mrk></seg-source>
    </trans-unit>
    <trans-unit id="2">
      <source>Here. There.</source>
      <seg-source><mrk mtype="seg" mid="0">Here.</mrk> <mrk mtype="seg" mid="1">There.</mrk>\
</seg-source>
      <target><mrk mtype="seg" mid="0">Hier.</mrk> <mrk mtype="seg" mid="1"/></target>
    </trans-unit>
    <trans-unit id="3">
      <source>Up. Down.</source>
      <seg-source><mrk mtype="seg" mid="0">Up.</mrk> <mrk mtype="seg" mid="1">Down.</mrk>\
</seg-source>
      <target><mrk mtype="seg" mid="1">Runter.</mrk></target>
    </trans-unit>
    <trans-unit id="4">
      <source>Old. Done.</source>
      <seg-source><mrk mtype="seg" mid="0">Old.</mrk> <mrk mtype="seg" mid="1">Done.</mrk>\
</seg-source>
      <target>Alt. Fertig.</target>
    </trans-unit>
    <trans-unit id="5">
      <source>A man. A child.</source>
      <seg-source><mrk mtype="seg">A man.</mrk> <mrk mtype="seg">A child.</mrk></seg-source>
    </trans-unit>
  </body></file>
</xliff>
"""

XLIFF_2 = """\
<?xml version='1.0' encoding='UTF-8'?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de">
  <file id="f"><unit id="1">
    <segment id="s1"><source>Hello <pc id="1">dear</pc> world</source></segment>
    <segment id="s2" state="final"><source>Done</source><target>Fertig</target></segment>
  </unit><unit id="2" translate="no"><segment><source>Keep</source></segment></unit></file>
</xliff>
"""

ODT_CONTENT = """\
<?xml version="1.0" encoding="UTF-8"?>
<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" \
xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" \
xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"><office:body><office:text>\
<text:h text:outline-level="1">A heading</text:h>\
<text:p>Some <text:span text:style-name="T1">bo</text:span>\
<text:span text:style-name="T1">ld</text:span> text<text:note text:id="n1">\
<text:note-citation>1</text:note-citation><text:note-body><text:p>The note</text:p>\
</text:note-body>\
</text:note> here.<text:s text:c="2"/>End</text:p><text:p>12</text:p>\
<text:p><draw:frame><draw:text-box><text:p>In a box</text:p></draw:text-box></draw:frame></text:p>\
</office:text></office:body></office:document-content>"""


def read(name: str, data: bytes | str, limits: DocumentLimits = LIMITS) -> Document:
    """The document in a file."""
    return read_document(name, data.encode() if isinstance(data, str) else data, limits)


def texts(document: Document) -> list[str]:
    """The texts of a document's segments."""
    return [segment.text for segment in document.segments]


def zipped(parts: Mapping[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip file."""
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", method) as target:
        for name, content in parts.items():
            # The same bytes at any time.
            target.writestr(zipfile.ZipInfo(name), content, method)
    return output.getvalue()


def odt(content: str = ODT_CONTENT) -> bytes:
    """An OpenDocument text with this content."""
    return zipped(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": content,
            "Pictures/a.png": b"\x89PNG",
        }
    )


def word(document: docx.document.Document) -> bytes:
    """The file of a Word document."""
    output = io.BytesIO()
    document.save(output)
    return output.getvalue()


def letter() -> docx.document.Document:
    """A Word document with an example of everything that python-docx can write."""
    document = docx.Document()
    document.add_heading("A heading", 1)
    paragraph = document.add_paragraph("This is ")
    paragraph.add_run("bo").bold = True
    paragraph.add_run("ld").bold = True
    paragraph.add_run(" and ")
    paragraph.add_run("italic text").italic = True
    paragraph.add_run(".\tAfter the tab\nAfter the break")
    table = document.add_table(1, 2)
    table.cell(0, 0).text = "Cell one"
    table.cell(0, 1).text = "12"
    document.sections[0].header.paragraphs[0].text = "The header"
    document.sections[0].footer.paragraphs[0].text = "The footer"
    return document


def opened(data: bytes) -> docx.document.Document:
    """The Word document in a file."""
    return docx.Document(io.BytesIO(data))


def upper(document: Document) -> list[str]:
    """The segments in capitals with the same tags: a translation that keeps everything."""
    return [_upper(text) for text in texts(document)]


def _upper(text: str) -> str:
    pieces: Sequence[str] = text.replace("<", "\0<").replace(">", ">\0").split("\0")
    return "".join(piece if piece.startswith("<") else piece.upper() for piece in pieces)


def written_in(language: str, document: Document, translations: Sequence[str]) -> bytes:
    """A document with translations in this language."""
    set_language(document, language)
    return document.write(translations)

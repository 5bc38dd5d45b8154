"""XLIFF as translation programs write it: their namespaces, notes of segments, copies, doctypes."""

from __future__ import annotations

import re

import pytest
from lxml import etree

from service.documents.document import DocumentLimits
from service.documents.formats import read_document
from service.documents.xliff import Xliff
from service.errors import InvalidArgumentError

V1 = 'xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2"'
TRADOS = 'xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0" sdl:version="1.0"'
MEMOQ = 'xmlns:mq="MQXliff"'
MEMSOURCE = 'xmlns:m="http://www.memsource.com/mxlf/2.0" m:version="2.4"'
OKAPI = (
    'xmlns:okp="okapi-framework:xliff-extensions" xmlns:its="http://www.w3.org/2005/11/its" '
    'its:version="2.0"'
)
TRADOS_HEADER = """<header><file-info xmlns="http://sdl.com/FileTypes/SdlXliff/1.0"><value key="k">v
</value></file-info><reference><internal-file form="base64">QUJD</internal-file></reference>
<tag-defs xmlns="http://sdl.com/FileTypes/SdlXliff/1.0"><tag id="5"><bpt name="cf">&lt;cf
bold="True"&gt;</bpt><ept name="cf">&lt;/cf&gt;</ept></tag></tag-defs></header>"""


def file_of(units: str, attributes: str = "", *, header: str = "", before: str = "") -> str:
    file = 'original="a.docx" datatype="x" source-language="en-US" target-language="de-DE"'
    body = f"<file {file}>{header}<body>{units}</body></file>"
    return f"{before}<xliff {V1} {attributes}>{body}</xliff>"


def read(data: str, extension: str = ".xlf") -> Xliff:
    document = read_document(f"a{extension}", data.encode(), DocumentLimits())
    assert isinstance(document, Xliff)
    return document


def texts(data: str, extension: str = ".xlf") -> list[str]:
    return [segment.text for segment in read(data, extension).segments]


def translated(data: str, extension: str = ".xlf") -> str:
    document = read(data, extension)
    return document.write([segment.text.upper() for segment in document.segments]).decode()


def divided(*segments: tuple[str, str, str]) -> str:
    """A unit of Trados: texts, targets and attributes of its segments."""
    source, target, notes = [], [], []
    for mid, (text, translation, attributes) in enumerate(segments, 1):
        source.append(f'<mrk mtype="seg" mid="{mid}">{text}</mrk>')
        target.append(f'<mrk mtype="seg" mid="{mid}">{translation}</mrk>')
        notes.append(f'<sdl:seg id="{mid}" {attributes}/>')
    return (
        f'<trans-unit id="u"><source><g id="5">{" ".join(t for t, _, _ in segments)}</g></source>'
        f'<seg-source><g id="5">{" ".join(source)}</g></seg-source>'
        f'<target><g id="5">{" ".join(target)}</g></target>'
        f"<sdl:seg-defs>{''.join(notes)}</sdl:seg-defs></trans-unit>"
    )


def test_trados() -> None:
    """Locked segments stay as they are, and so do the program's own elements."""
    unit = divided(
        ("A dog.", "Ein Hund.", 'conf="Translated" origin="tm" percent="100"'),
        ("A cat.", "", ""),
        ("A bird.", "", 'locked="true"'),
        ("A draft.", "Ein Entwurf.", 'conf="Draft"'),
    )
    file = file_of(
        f'<trans-unit translate="no" id="0"><source><x id="0"/></source></trans-unit>'
        f'<group><sdl:cxts><sdl:cxt id="1"/></sdl:cxts>{unit}</group>',
        TRADOS,
        header=TRADOS_HEADER,
    )
    assert texts(file, ".sdlxliff") == ["A cat."]
    written = translated(file, ".sdlxliff")
    assert '<mrk mtype="seg" mid="2">A CAT.</mrk> <mrk mtype="seg" mid="3"/>' in written
    assert TRADOS_HEADER in written
    assert '<sdl:seg id="3" locked="true"/>' in written


def test_memoq() -> None:
    """Targets are empty, codes have text, and earlier versions are beside the unit's texts."""
    units = """
    <trans-unit id="1" mq:status="NotStarted"><source xml:space="preserve">Press <bpt id="1"
    ctype="bold">{}</bpt>Start<ept id="1">{}</ept> now.</source><target></target>
    <mq:minorversions><mq:historical-unit mq:status="NotStarted"><source>old</source><target/>
    </mq:historical-unit></mq:minorversions></trans-unit>
    <trans-unit id="2" mq:status="ManuallyConfirmed"><source>Figure</source><target>Bild</target>
    </trans-unit>
    <trans-unit id="3" mq:status="NotStarted" mq:locked="locked"><source>A</source><target/>
    </trans-unit>
    <trans-unit id="4" mq:status="NotStarted"><source><ph id="1">&lt;mq:rxt displaytext="p"
    val="p" /&gt;</ph>Hello</source><target></target></trans-unit>"""
    found = texts(file_of(units, MEMOQ), ".mqxliff")
    assert found == ['Press <img id="0">Start<img id="1"> now.', '<img id="0">Hello']


def test_memsource_and_wordfast() -> None:
    units = "".join(
        f'<trans-unit id="a:{number}" m:confirmed="0" m:locked="{locked}"><source>{{1}}Dog {number}'
        "{2}</source><target></target><alt-trans><target>x</target></alt-trans></trans-unit>"
        for number, locked in enumerate(("false", "true"))
    )
    assert texts(file_of(units, MEMSOURCE), ".mxliff") == ["{1}Dog 0{2}"]
    unit = '<trans-unit id="1"><source>A dog</source><target/></trans-unit>'
    assert texts(file_of(unit), ".txlf") == ["A dog"]


def okapi(*pairs: tuple[str, str], attributes: str = "") -> str:
    return file_of(
        "".join(
            f'<trans-unit id="{number}" {attributes}><source xml:lang="en">{source}</source>'
            f'<seg-source><mrk mid="0" mtype="seg">{source}</mrk></seg-source>'
            f'<target xml:lang="de"><mrk mid="0" mtype="seg">{target}</mrk></target></trans-unit>'
            for number, (source, target) in enumerate(pairs)
        ),
        OKAPI if not attributes else MEMOQ,
    )


A_DOG, TWO = ("A <g id='1'>dog</g>.", "A <g id='1'>dog</g>."), ("Two.", " Two. ")


def test_a_file_of_copies_is_not_translated_yet() -> None:
    """Okapi's Tikal, and Trados (`origin="source"`), fill targets with the source."""
    assert texts(okapi(A_DOG, TWO)) == ['A <span id="0">dog</span>.', "Two."]
    assert "TWO." in translated(okapi(TWO))
    plain = "<trans-unit id='1'><source>A dog</source><target>A dog</target></trans-unit>"
    assert texts(file_of(plain)) == ["A dog"]
    draft = divided(("A dog.", "A dog.", 'conf="Draft" origin="source"'), ("A", "", ""))
    assert texts(file_of(draft, TRADOS)) == ["A dog.", "A"]
    segment = "<segment><source>A dog</source><target>A dog</target></segment>"
    file = f"<xliff version='2.0'><file><unit id='1'>{segment}</unit></file></xliff>"
    assert texts(file) == ["A dog"]


def test_equal_translations_stay() -> None:
    """Of a file with other translations, with a state, or where a translator confirmed them."""
    assert texts(okapi(("OK", "OK"), ("Two.", "Zwei."))) == []
    final = "<trans-unit id='1'><source>OK</source><target state='final'>OK</target></trans-unit>"
    assert texts(file_of(final)) == []
    assert texts(okapi(("OK", "OK"), attributes='mq:status="ManuallyConfirmed"')) == []
    confirmed = divided(("OK", "OK", 'conf="ApprovedTranslation"'), ("A", "A", 'conf="Draft"'))
    assert texts(file_of(confirmed, TRADOS)) == ["A"]


DOCTYPE = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE xliff PUBLIC "-//XLIFF//DTD XLIFF//EN" '
    '"http://www.oasis-open.org/committees/xliff/documents/xliff.dtd">\n'
)
OLD = "<xliff version='1.0'><file><trans-unit><source>{}</source></trans-unit></file></xliff>"


def test_version_1_0_has_a_document_type() -> None:
    file = DOCTYPE + OLD.format("A dog")
    assert texts(file) == ["A dog"]
    written = translated(file)
    assert written.startswith(DOCTYPE)
    assert etree.fromstring(written.encode()).findtext(".//target") == "A DOG"
    wide = file.replace("UTF-8", "UTF-16").encode("utf-16")
    [segment] = read_document("a.xlf", wide, DocumentLimits()).segments
    assert segment.text == "A dog"


@pytest.mark.parametrize(
    ("doctype", "text", "message"),
    [
        ('<!DOCTYPE xliff SYSTEM "x.dtd" [<!ENTITY a "b">]>', "a", "document type"),
        ('<!-- <!DOCTYPE xliff> --><!DOCTYPE xliff [<!ENTITY a "b">]>', "a", "document type"),
        ('<!DOCTYPE xliff [<!ATTLIST source translate CDATA "no">]>', "a", "document type"),
        ('<!DOCTYPE tmx SYSTEM "x.dtd">', "a", "document type"),
        ('<!DOCTYPE xliff SYSTEM "x.dtd">', "a &nbsp; b", "entities|not defined"),
        ('<!DOCTYPE xliff SYSTEM "file:///etc/passwd">', "&passwd;", "entities|not defined"),
    ],
)
def test_document_types_that_declare_something(doctype: str, text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        read(doctype + OLD.format(text))


def test_nothing_is_fetched_for_a_document_type(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither a file with declarations nor a default that it has for an attribute."""
    dtd = tmp_path_factory.mktemp("dtd") / "x.dtd"
    dtd.write_text('<!ATTLIST trans-unit translate CDATA "no"><!ENTITY e "expanded">')
    assert texts(f'<!DOCTYPE xliff SYSTEM "{dtd}">{OLD.format("A dog")}') == ["A dog"]
    with pytest.raises(InvalidArgumentError):
        read(f'<!DOCTYPE xliff SYSTEM "{dtd}">{OLD.format("&e;")}')


def test_many_segments_of_one_unit_take_linear_time() -> None:
    """Each is looked up among the notes of its unit."""
    unit = divided(*[("A dog.", "", 'conf="Draft"')] * 5000)
    assert len(texts(file_of(unit, TRADOS))) == 5000
    assert re.search('id="5000" conf="Draft"', unit)

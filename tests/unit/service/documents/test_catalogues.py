"""Catalogues of gettext and XLIFF files."""

from __future__ import annotations

import html
import re

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from service.errors import InvalidArgumentError
from tests.unit.service.documents import samples
from tests.unit.service.documents.samples import read, texts, written_in


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


def test_line_breaks_and_tabs_divide_a_message_with_placeholders() -> None:
    document = read("a.po", 'msgid "Dogs\\t{n}\\nCats\\t{m} & <br>\\n"\nmsgstr ""\n')
    [text] = texts(document)
    assert "<br>Cats<hr>" in text
    [entry] = polib.pofile(document.write([text.replace("Dogs", "Hunde")]).decode())
    assert entry.msgstr == "Hunde\t{n}\nCats\t{m} & <br>\n"


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
        'Press <code id="0"></code>',
        "Again",
    ]
    changed = [
        '<img id="1">Hallo <span id="0">liebe</span> Welt',
        'Drücke <code id="0"></code>',
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


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ('Open <x id="a"/> files.', 'Open <code id="0"></code> files.'),
        ('Open <ph id="a">%d</ph> files.', 'Open <code id="0"></code> files.'),
        ('Open <x id="a" equiv-text="{{n}}"/> files.', 'Open <code id="0"></code> files.'),
        ('<x id="a"/>Open it.', '<img id="0">Open it.'),
        ('Open <x id="a" ctype="image"/> it.', 'Open <img id="0"> it.'),
        ('Open <x id="a" equiv-text="&lt;b>"/> it.', 'Open <img id="0"> it.'),
        ('Open <ph id="a">&lt;b></ph> it.', 'Open <img id="0"> it.'),
        ('Hello,<x id="a" ctype="lb"/>Tom.', 'Hello,<br id="0">Tom.'),
        ('Hello,<ph id="a">&lt;br/></ph>Tom.', 'Hello,<br id="0">Tom.'),
        ('Hello, <ph id="a" subType="xlf:lb"/>Tom.', 'Hello, <br id="0">Tom.'),
        ('Hello,<x id="a" equiv-text="&lt;br class=y>"/>Tom.', 'Hello,<br id="0">Tom.'),
        ('The <mrk mtype="protected">Red</mrk> one.', 'The <code id="0"></code> one.'),
        ('The <mrk id="m" translate="no">Red</mrk> one.', 'The <code id="0"></code> one.'),
        ('The <mrk id="m" mtype="x-a">Red</mrk> one.', 'The <span id="0">Red</span> one.'),
        ("Hello <!-- c --> you", 'Hello <img id="0"> you'),
        ('Hello <?pi ctype="lb"?> you', 'Hello <img id="0"> you'),
        ('You <ph equiv-text="{n, other {a&lt;br/>}}"/> men', 'You <code id="0"></code> men'),
    ],
)
def test_kinds_of_elements_in_xliff(source: str, text: str) -> None:
    unit = f"<trans-unit id='1'><source>{source}</source></trans-unit>"
    document = read("a.xlf", f"<xliff version='1.2'><file><body>{unit}</body></file></xliff>")
    assert texts(document) == [text]
    root = etree.fromstring(document.write([f"{text} "]))  # as the element or its copy
    wrote, target = (root.find(f".//{name}") for name in ("source", "target"))
    assert (
        etree.tostring(target).partition(b">")[2].replace(b"target", b"source")
        == (etree.tostring(wrote).partition(b">")[2])
    )


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


def test_texts_without_letters_are_their_own_translations() -> None:
    sources = ["%", "A dog", "\n12 ", " ", "\n"]
    catalogue = polib.POFile()
    catalogue += [polib.POEntry(msgid=source) for source in sources]
    document = read("a.po", str(catalogue))
    assert texts(document) == ["A dog"]
    found = {each.msgid: each.msgstr for each in polib.pofile(document.write(["Hund"]).decode())}
    assert found == {"%": "%", "A dog": "Hund", "\n12 ": "\n12 ", " ": "", "\n": ""}
    sources = ["12", "A dog", '<x id="1"/>', "", '<g id="1">%</g>']
    units = [f"<trans-unit id='u'><source>{each}</source></trans-unit>" for each in sources]
    xliff = f"<xliff version='1.2'><file><body>{''.join(units)}</body></file></xliff>"
    document = read("a.xlf", xliff)
    assert texts(document) == ["A dog"]
    root = etree.fromstring(document.write(["Hund"]))
    targets = [unit.find("target") for unit in root.iter("trans-unit")]
    shown = [None if each is None else [*each.itertext()] for each in targets]
    assert shown == [["12"], ["Hund"], [], None, ["%"]]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (r"The caf\303\251 is open.", "The café is open."),
        (r"The caf\xc3\xa9 is open.", "The café is open."),
        (r"The caf\351 is open.", "The café is open."),
        ('The caf\\303"\n"\\251 is open.', "The café is open."),
        (r"A \"dog\"\tis \\303", 'A "dog"\tis \\303'),
    ],
)
def test_escapes_of_bytes_are_utf_8(written: str, text: str) -> None:
    assert texts(read("a.po", f'msgid "{written}"\nmsgstr ""\n')) == [text]


@pytest.mark.parametrize("version", ["1.2", "2.0"])
def test_xliff_names_the_language_of_its_targets(version: str) -> None:
    name, inside, found_in = (
        ("target-language", "<trans-unit id='u'>{}</trans-unit>", "file")
        if version == "1.2"
        else ("trgLang", "<unit><segment>{}</segment></unit>", "xliff")
    )
    file = f"<file>{inside.format('<source>A dog</source>')}</file>"
    file = f"<xliff version='{version}'>{file}</xliff>".replace(
        f"<{found_in}", f"<{found_in} FOUND"
    )

    def written(found: str, language: str) -> list[str | None]:
        document = read("a.xlf", file.replace("FOUND", found))
        root = etree.fromstring(written_in(language, document, ["Hund"]))
        return [each.get(name) for each in (root, *root.iter("file")) if each.get(name)]

    assert written("", "de") == ["de"]
    assert written("", "") == []
    for known in ("de-AT", "de_DE", "deu", "x-klingon"):
        assert written(f"{name}='{known}'", "de") == [known]
    assert written(f"{name}=''", "de") == ["de"]
    assert written(f"{name}='no'", "nb") == ["no"]
    with pytest.raises(InvalidArgumentError, match=f"is into 'fr', by its {name}; .* into 'de'"):
        written(f"{name}='fr'", "de")

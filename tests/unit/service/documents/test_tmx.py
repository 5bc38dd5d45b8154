"""TMX: what is written is read, and hostile or damaged files are refused with their reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.documents.document import DocumentLimits
from service.documents.tmx import read_tmx
from service.errors import InvalidArgumentError
from service.memory import tmx
from service.memory.pairs import MAX_CHARACTERS, TextPair

LIMITS = DocumentLimits()
ANY = ("", "")
texts = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"),
        st.sampled_from("\t\n\r<>&'\""),
    ),
    min_size=1,
    max_size=30,
).filter(str.strip)


def read(data: str | bytes, languages: tuple[str, str] = ANY) -> list[TextPair]:
    found = read_tmx(data.encode() if isinstance(data, str) else data, LIMITS, languages)
    return [pair for batch in found.batches() for pair in batch]


def file_of(*units: str, header: str = 'srclang="en"', before: str = "") -> str:
    return f"{before}<tmx version='1.4'><header {header}/><body>{''.join(units)}</body></tmx>"


def unit(source: str = "A dog.", target: str = "Ein Hund.", **attributes: str) -> str:
    given = "".join(f' {name}="{value}"' for name, value in attributes.items())
    return (
        f'<tu{given}><tuv xml:lang="en"><seg>{source}</seg></tuv>'
        f'<tuv xml:lang="de-AT"><seg>{target}</seg></tuv></tu>'
    )


@given(st.lists(st.tuples(texts, texts)))
def test_what_is_written_is_read(pairs: list[tuple[str, str]]) -> None:
    given = [TextPair(source, target.strip(), "en", "de-AT") for source, target in pairs]
    good = [pair for pair in given if pair.target]
    assert read(tmx.HEAD + tmx.tmx_units(good) + tmx.TAIL) == good


def test_languages_of_a_file() -> None:
    french = (
        '<tu><tuv xml:lang="fr"><seg>Un.</seg></tuv><tuv lang="EN-us"><seg>One.</seg></tuv></tu>'
    )
    file = file_of(unit(), french)
    assert read(file) == [
        TextPair("A dog.", "Ein Hund.", "en", "de-AT"),
        TextPair("One.", "Un.", "EN-us", "fr"),
    ]
    assert read(file, ("de", "")) == [TextPair("Ein Hund.", "A dog.", "de-AT", "en")]
    assert read(file, ("en-GB", "fr")) == [TextPair("One.", "Un.", "EN-us", "fr")]
    own = file_of(unit(srclang="de"), header='srclang="*all*"')
    assert [pair.source for pair in read(own)] == ["Ein Hund."]
    for header in ('srclang="*all*"', "", 'srclang="English (U.S.)"'):
        with pytest.raises(InvalidArgumentError, match="names no source language"):
            read(file_of(unit(), header=header))
        assert len(read(file_of(unit(), header=header), ("en", ""))) == 1


def test_tags_in_segments_are_left_out() -> None:
    source = 'A <bpt i="1">&lt;b></bpt>dog<ept i="1">&lt;/b></ept> <hi>ru<ph/>ns</hi><!-- x -->.'
    assert read(file_of(unit(source)))[0].source == "A dog runs."


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("A <ph/>bird", "A bird"),
        ("A <ph/> bird", "A bird"),
        ("A<ph/> bird", "A bird"),
        ("A<ph/>bird", "Abird"),
        ("A <bpt>&lt;b></bpt> <ept>&lt;/b></ept> bird", "A bird"),
        ("A <ph type='lb'/> bird", "A bird"),
        ("A\n<ph/> bird", "A\nbird"),
        ("A  bird", "A  bird"),
        ("A <hi> bird</hi>", "A  bird"),
        ("<ph/> A bird <ph/>", " A bird "),
    ],
)
def test_a_code_leaves_no_second_space(segment: str, text: str) -> None:
    assert read(file_of(unit(segment)))[0].source == text


def test_many_codes_and_spaces_take_linear_time() -> None:
    assert read(file_of(unit(f"A{' ' * 50_000}.", "B"))) == []  # too long, and read
    [pair] = read(file_of(unit(f"A{' <ph/>' * 20_000}b")))
    assert pair.source == "A b"


@pytest.mark.parametrize(
    "code",
    ['<ph type="lb"/>', "<ph x='1'>&lt;br/></ph>", "<ph>&lt;br1/></ph>", '<it type="x-br">{}</it>'],
)
def test_a_code_that_breaks_the_line_divides_words(code: str) -> None:
    assert read(file_of(unit(f"A dog{code}runs.")))[0].source == "A dog runs."


@pytest.mark.parametrize(
    "before",
    [
        "<?xml version='1.0'?><!DOCTYPE tmx SYSTEM 'tmx14.dtd'>",
        '<!DOCTYPE tmx PUBLIC "-//LISA OSCAR:1998//DTD for TMX//EN" "tmx14.dtd" >\n',
        "<!DOCTYPE tmx>",
    ],
)
def test_a_document_type_without_declarations_is_left_out(before: str) -> None:
    assert len(read(file_of(unit(), before=before))) == 1


def test_utf_16_is_read() -> None:
    file = file_of(unit("ä"), before="<?xml version='1.0' encoding='UTF-16'?><!DOCTYPE tmx>")
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):  # with a mark, and without
        assert read(file.encode(encoding))[0].source == "ä"
    with pytest.raises(InvalidArgumentError, match="no well-formed XML"):
        read(b"\xff\xfe\x00\xd8\x00")


BOMB = "<!DOCTYPE tmx [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;'>]>"
NAMESPACES = "".join(f' xmlns:n{i}="urn:{i}"' for i in range(2000))
MANY = "".join(f'<tuv xml:lang="de"><seg>{i}</seg></tuv>' for i in range(3000))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("", "does not begin with a tag"),
        ("<tmx>", "no well-formed XML"),
        ("<xliff/>", "is no TMX file"),
        (file_of(unit("&b;"), before=BOMB), "document type"),
        (
            file_of(before="<!DOCTYPE tmx SYSTEM 'file:///etc/passwd' [<!ENTITY a 'b'>]>"),
            "document type",
        ),
        (file_of("<hi>" * 300 + "</hi>" * 300), "no well-formed XML"),
        (file_of(f"<tu{NAMESPACES}/>"), "namespaces"),
        (file_of("<tu " + " ".join(f'a{i}=""' for i in range(300)) + "/>"), "attributes"),
        (
            file_of(f'<tu><tuv xml:lang="en"><seg>{"a" * MAX_CHARACTERS}</seg></tuv>{MANY}</tu>'),
            "more than 2 characters for each byte",
        ),
    ],
)
def test_hostile_files_are_refused(file: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        read(file)


def test_bad_units_are_skipped() -> None:
    bad = ("<tu/>", unit("", "x"), unit("a" * (MAX_CHARACTERS + 1)), unit(" ", "x"))
    odd = '<tu><tuv xml:lang="en"><seg>a</seg></tuv><tuv xml:lang="??"><seg>b</seg></tuv></tu>'
    found = read_tmx(file_of(*bad, odd, unit()).encode(), LIMITS, ANY)
    assert [len(batch) for batch in found.batches()] == [1]
    assert found.num_skipped == 5

"""Parsing of HTML and XML: names, comments, declarations, entities."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.text.markup.html_parser import decode
from service.text.markup.markup_translator import MarkupTranslator
from service.text.markup.tokens import Kind, tokenize
from service.text.options import TextOptions
from tests.fake_linked import FakeLinkedTranslator
from tests.unit.service.text.markup_documents import HTML, XML, plain_lines, tags, translated


@pytest.mark.parametrize(
    "text",
    [
        "a < b",
        "a <3",
        "a </",
        "a <b and dog",
        "a <b = dog <b>",
        "a <- b",
        "<b and <i",
        "a<b,c runs",
    ],
)
def test_a_sign_before_a_word_is_text(text: str) -> None:
    kinds = [token.kind for token in tokenize(text)]
    assert kinds[0] is Kind.TEXT


_names = st.from_regex(r"\A[^\W\d][\w.-]{0,5}\Z").filter(str.isprintable)
_inside_comments = st.text(st.sampled_from("a<>!- ")).filter(
    lambda text: not re.search("--!?>|^-?>|-$|--!$", text)
)


@given(name=_names)
def test_names_in_xml_begin_with_a_letter_of_any_script(name: str) -> None:
    document = f"<doc><{name} a='>'>The dog runs.</{name}></doc>"
    tokens = list(tokenize(document, is_xml=True))
    kinds = [Kind.START, Kind.START, Kind.TEXT, Kind.END, Kind.END]
    assert [token.kind for token in tokens] == kinds
    assert [token.name for token in tokens] == ["doc", name, "", name, "doc"]


async def test_elements_with_names_in_any_script_are_translated() -> None:
    document = "<doc><Überschrift>The dog runs.</Überschrift><:a/></doc>"
    assert tags(await translated(document, XML), XML) == tags(document, XML)
    assert tags("<doc", XML) == ["<doc"]
    assert tags("<ü", XML) == ["<ü"]
    assert tags("a <ü>b</ü>") == []


@given(inside=_inside_comments, end=st.sampled_from(("-->", "--!>")))
def test_a_comment_in_html_ends_where_browsers_end_it(inside: str, end: str) -> None:
    comment = f"<!--{inside}{end}"
    assert [token.raw for token in tokenize(f"a {comment}dog -->")] == ["a ", comment, "dog -->"]


@pytest.mark.parametrize(
    ("document", "html", "xml"),
    [
        ("<!--> a -->b", ["<!-->", " a -->b"], ["<!--> a -->", "b"]),
        ("<!---> a -->b", ["<!--->", " a -->b"], ["<!---> a -->", "b"]),
        ("<!---->a", ["<!---->", "a"], ["<!---->", "a"]),
        ("<!----!>a-->b", ["<!----!>", "a-->b"], ["<!----!>a-->", "b"]),
        ("<!---!>a-->b", ["<!---!>a-->", "b"], ["<!---!>a-->", "b"]),
        ("<!--a--!>b", ["<!--a--!>", "b"], ["<!--a--!>b"]),
        ("<!--a", ["<!--a"], ["<!--a"]),
    ],
)
def test_short_and_wrong_comments(document: str, html: list[str], xml: list[str]) -> None:
    assert [token.raw for token in tokenize(document)] == html
    assert [token.raw for token in tokenize(document, is_xml=True)] == xml


@pytest.mark.parametrize(
    "document",
    [
        "<p><![if !supportLists]><b>1. </b><![endif]>The dog runs.</p>",
        "<!--[if !mso]><!--><p>The dog runs.</p><!--<![endif]-->",
        "<![if x]><![if y]>dog<![endif]><![endif]>",
    ],
)
async def test_conditions_of_word_are_comments(document: str) -> None:
    result = await translated(document)
    conditions = re.compile(r"<!(?:--)?\[[^>]*>")
    assert Counter(conditions.findall(result)) == Counter(conditions.findall(document))
    kinds = {token.kind for token in tokenize(document) if token.raw.startswith("<!")}
    assert kinds == {Kind.OTHER}
    assert "if" not in "".join(plain_lines(document))


_sign = st.sampled_from(("if a <b and c ", "<b 'c' ", '<b "c" ', "<x<y ", "<!a ", "<b c='\"' "))


@given(signs=st.lists(_sign, max_size=4), count=st.integers(1, 40), is_xml=st.booleans())
def test_no_number_of_signs_before_words_cuts_a_later_tag(
    signs: Sequence[str], count: int, is_xml: bool
) -> None:
    before = "".join(signs) * count
    document = f'{before}<a title="x > y" href="u">A link here</a>'
    assert tags(document, XML if is_xml else HTML) == ['<a title="x > y" href="u">', "</a>"]


@pytest.mark.parametrize(
    "declaration",
    [
        '<!DOCTYPE r [<!ENTITY a "x]y">]>',
        "<!DOCTYPE r [<!ENTITY a 'x]>y'> <!ENTITY b \"'\"> ] >",
        '<!DOCTYPE r SYSTEM "a>b.dtd">',
        "<!DOCTYPE r PUBLIC 'a[b' \"c>d\" [<!ELEMENT r ANY>]>",
        "<!DOCTYPE r [<!-- don't ] --><?a can't ]> ?><!ENTITY a \"]\">]>",
        "<!DOCTYPE r [<!-- a ' -->]>",
        "<!DOCTYPE r [a ' b]>",  # wrong
        "<!DOCTYPE r it's>",
    ],
)
async def test_a_document_type_ends_behind_its_quoted_strings(declaration: str) -> None:
    document = f"{declaration}<r>A dog runs.</r>"
    assert tags(document, XML) == [declaration, "<r>", "</r>"]
    assert (await translated(document, XML)).startswith(f"{declaration}<r>")


def test_a_declaration_in_html_ends_where_browsers_end_it() -> None:
    assert tags('<!DOCTYPE html SYSTEM "a>b">it\'s') == ['<!DOCTYPE html SYSTEM "a>']


def test_a_title_without_its_end_is_text() -> None:
    assert plain_lines("<title>a dog</title") == ["a dog"]
    assert plain_lines("<script>a dog</script") == []


_FLOODS = (
    *("<", "<!--", "<a ", '<a "', "<a '\"", "</a", "<![CDATA[", "<!D", "<!D[", "<!a []", "<?", "&"),
    *("<b>", "</b>", "<b></b>", "<b>a", "a</b>", "<b>a</b>", "<b>a ", "<img>a ", "<code>", "<i/>"),
    *("<code>a</code>", "<code></code> a ", "<p>a ", "{1}", "&lt;", "&#1;", "<x>a</x>", "</p>a"),
    *("<b>a <i>b</i></b> ", "<div translate=no>", "<script>", "<b><i></b></i> a "),
    *('<b "', "<a x='", "<![", "<!DOCTYPE r [", '<!D "', "<!D[<!--", "<!D[<?", "<!---"),
)


@pytest.mark.parametrize("flood", _FLOODS)
@pytest.mark.parametrize("options", [HTML, XML])
async def test_floods_of_markup_take_linear_time(flood: str, options: TextOptions) -> None:
    document = (flood * 100_000)[:20_000] + "dog"
    below = FakeLinkedTranslator()
    [result] = await MarkupTranslator(below, options, below.limits).translate([document])
    if result.error is None:
        assert Counter(tags(result.text, options)) == Counter(tags(document, options))


@pytest.mark.parametrize(
    ("raw", "is_xml", "texts"),
    [
        ("a&amp;b", False, ["a", "&", "b"]),
        ("&nbsp;&eacute;", False, ["\xa0", "é"]),
        ("&eacute;&lt;", True, [None, "<"]),
        ("&doc-guide;&b;&_x.1;&x:y; &-b; &b &1;", True, [None] * 4 + [" &-b; &b &1;"]),
        ("&b; &doc-guide;", False, ["&b; &doc-guide;"]),
        ("AT&T &unknown; &#1; &#xD800;", False, ["AT&T ", "&unknown;", " ", None, " ", "\ufffd"]),
    ],
)
def test_entities_are_decoded(raw: str, is_xml: bool, texts: Sequence[str | None]) -> None:
    items = list(decode(raw, is_xml=is_xml))
    assert "".join(item.raw for item in items) == raw
    assert [getattr(item, "text", None) for item in items] == texts

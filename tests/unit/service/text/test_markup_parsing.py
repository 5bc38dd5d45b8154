"""Parsing of HTML and XML, and calls with markup: limits, errors, memory."""

from __future__ import annotations

import asyncio
import gc
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidArgumentError, ResourceExhaustedError
from service.text.markup.html_parser import decode
from service.text.markup.markup_translator import MarkupTranslator, plain_texts
from service.text.markup.tokens import Kind, tokenize
from service.text.markup.tree import MAX_DEPTH, Node
from service.text.options import TextOptions
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import TextResult
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


# --- calls ----------------------------------------------------------------------------------------


async def test_limits_and_bad_characters_are_errors() -> None:
    below = FakeLinkedTranslator()
    translator = MarkupTranslator(below, HTML, TranslatorLimits(max_characters=1_000_000))
    deep = "<b>" * (MAX_DEPTH + 1) + "dog" + "</b>" * (MAX_DEPTH + 1)
    results = await translator.translate([deep, "<p \0>dog", "<b>x" * 70_000, "<b>dog</b>"])
    errors = [str(result.error) for result in results[:3]]
    assert "contents[0]: inline tags nested deeper than 100" in errors[0]
    assert "contents[1]: the character NUL at position 3" in errors[1]
    assert "contents[2]: more than 50,000 tags" in errors[2]
    assert results[3].text == "<b>dog's</b>"
    with pytest.raises(InvalidArgumentError, match=r"contents\[0\]: 1,000,001 characters"):
        await translator.translate(["<p>" + "x" * 999_998])


def test_streams_of_markup_are_refused() -> None:
    below = FakeLinkedTranslator()
    with pytest.raises(InvalidArgumentError, match="mime_type: a stream"):
        MarkupTranslator(below, HTML, below.limits).stream("<p>dog</p>")


async def test_no_document_is_left_to_the_garbage_collector(few_objects: None) -> None:
    """A full collection of large trees takes a tenth of a second."""
    document = "<p>A <b>dog <i>runs</i></b>.</p>" * 20
    gc.disable()
    try:
        await translated(document)
        await plain_texts([document], HTML)
        assert num_nodes() == 0
    finally:
        gc.enable()


def num_nodes() -> int:
    return sum(type(each) is Node for each in gc.get_objects())


# Two of them are translated together.
LONG = f"<pre>{'x' * 7000}</pre><p>A cat.</p>"


async def test_documents_are_parsed_as_those_before_are_translated(few_objects: None) -> None:
    release = asyncio.Event()

    class Held(FakeLinkedTranslator):
        async def translate(self, texts: Sequence[str], *given: Any, **shared: Any) -> Any:
            results = await super().translate(texts, *given, **shared)
            await release.wait()
            return results

    below, documents = Held(), [LONG.replace("cat", "dog")] * 20
    translating = asyncio.create_task(
        MarkupTranslator(below, HTML, below.limits).translate(documents)
    )
    while len(below.texts) < 4:
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(below.texts) == 4
    assert num_nodes() == 0  # long ones are parsed again
    release.set()
    assert len(await translating) == 20


async def test_a_call_without_room_is_refused_before_its_documents_are_parsed(
    few_objects: None,
) -> None:
    class Full(FakeLinkedTranslator):
        async def enter(self, *given: Any, **shared: Any) -> None:
            raise ResourceExhaustedError("full")

    below, before = Full(), num_nodes()
    with pytest.raises(ResourceExhaustedError):
        await MarkupTranslator(below, HTML, below.limits).translate(["<p>A dog.</p>" * 50])
    assert (below.texts, num_nodes()) == ([], before)


async def test_errors_name_a_document_of_a_long_request() -> None:
    class Refusing(FakeLinkedTranslator):
        async def translate(self, texts: Sequence[str], *given: Any, **shared: Any) -> Any:
            if (index := next((i for i, text in enumerate(texts) if "cat" in text), None)) is None:
                return await super().translate(texts, *given, **shared)
            if raises:
                raise InvalidArgumentError(f"contents[{index}]", "has a cat")
            error = InvalidArgumentError(f"contents[{index}]", "has a cat")
            results = await super().translate(texts, *given, **shared)
            results[index] = TextResult("", None, error=error)
            return results

    documents = [LONG.replace("cat", "dog")] * 6
    documents[4] = LONG
    below = Refusing()
    for split_sentences in (True, False):
        options = TranslateOptions(split_sentences=split_sentences)
        raises = False
        results = await MarkupTranslator(below, HTML, below.limits).translate(documents, options)
        [(index, error)] = [(i, r.error) for i, r in enumerate(results) if r.error]
        assert isinstance(error, InvalidArgumentError)
        assert (index, error.field) == (4, "contents[4]")
        raises = True
        with pytest.raises(InvalidArgumentError) as refused:
            await MarkupTranslator(below, HTML, below.limits).translate(documents, options)
        assert refused.value.field == "contents[4]"

"""Markup: each tag once, nested as before, around the words that it stood around."""

from __future__ import annotations

import asyncio
import gc
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.domain.requests import FinishReason
from service.errors import InvalidArgumentError, ResourceExhaustedError
from service.text.markup.document import Block, TextRun
from service.text.markup.html_parser import decode, parse_markup
from service.text.markup.markup_translator import MarkupTranslator, plain_texts
from service.text.markup.tokens import Kind, MarkupToken, tokenize
from service.text.markup.tree import MAX_DEPTH, Node
from service.text.options import LineBreaks, MimeType, TextOptions
from service.translation.links import LinkedText
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import TextResult
from tests.fake_linked import FakeLinkedTranslator

HTML = TextOptions(MimeType.HTML)
XML = TextOptions(MimeType.XML)

_words = st.sampled_from(("dog", "runs", "A&amp;B", "&lt;x&gt;", "&eacute;t", "42", "...", "é"))
_space = st.sampled_from((" ", " ", "\n  ", "&nbsp;"))


@st.composite
def inline(draw: st.DrawFn, depth: int = 3) -> str:
    """Balanced inline content."""
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(("text", "text", "element", "atom", "verbatim", "empty")))
        if kind == "text":
            parts.append(draw(_space).join(draw(st.lists(_words, min_size=1, max_size=4))))
            parts.append(draw(st.sampled_from(("", " "))))
        elif kind == "element" and depth:
            name = draw(st.sampled_from(("b", "i", "a", "span")))
            attributes = draw(st.sampled_from(("", ' href="/?a=1&amp;b=2"', " title='>'")))
            parts.append(f"<{name}{attributes}>{draw(inline(depth=depth - 1))}</{name}>")
        elif kind == "atom":
            parts.append(draw(st.sampled_from(('<img src="a.png">', "<!-- <b> -->", "<wbr/>"))))
        elif kind == "verbatim":
            parts.append(draw(st.sampled_from(("<code>x <b>=</b> 1</code>", "<var>n</var>"))))
        elif kind == "empty":
            parts.append(draw(st.sampled_from(("<i></i>", "<b> </b>", '<a id="x"><img></a>'))))
    return "".join(parts)


@st.composite
def documents(draw: st.DrawFn, depth: int = 2) -> str:
    """Balanced documents."""
    parts = [draw(inline())]
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(("p", "div", "li", "h1", "td", "b", "pre")))
        inside = draw(documents(depth=depth - 1)) if depth else draw(inline())
        parts.append(f"<{name}>{inside}</{name}>")
        parts.append(draw(st.sampled_from(("", "\n  ", "<br>", "text", "<script>a<b</script>"))))
    return "".join(parts)


_soup = st.lists(
    st.sampled_from(
        """
        <b> </b> <i> </i> <p> </p> dog_ runs _ < > & &lt; " ' <a_href=' <!-- --> <code> </code>
        <img> {1} <![CDATA[
        """.split()  # noqa: SIM905
    ),
    max_size=30,
).map(lambda parts: "".join(parts).replace("_", " "))


async def translated(document: str, options: TextOptions = HTML, **kwargs: bool) -> str:
    below = FakeLinkedTranslator(**kwargs)
    [result] = await MarkupTranslator(below, options, below.limits).translate([document])
    assert result.error is None, result.error
    assert not result.links
    return result.text


def tags(document: str, options: TextOptions = HTML) -> list[str]:
    tokens = tokenize(document, is_xml=options is XML)
    return [token.raw for token in tokens if token.kind is not Kind.TEXT]


def is_balanced(tokens: Sequence[MarkupToken]) -> bool:
    path: list[str] = []
    for token in tokens:
        if token.kind is Kind.START and token.name not in ("img", "br", "wbr"):
            path.append(token.name)
        elif token.kind is Kind.END and (not path or path.pop() != token.name):
            return False
    return not path


def without_spaces(text: str) -> str:
    return "".join(text.split())


def ends(line: str) -> tuple[str, str]:
    """The white space that a line begins and ends with."""
    start, end = len(line) - len(line.lstrip()), len(line.rstrip())
    return line[:start], line[max(start, end) :]


def depth_of(document: str, name: str) -> list[int]:
    """How many elements of this name are open after each of their tags; may be negative."""
    depth, depths = 0, []
    for token in tokenize(document):
        if token.name == name:
            depth += {Kind.START: 1, Kind.END: -1}.get(token.kind, 0)
            depths.append(depth)
    return depths


def plain_lines(document: str) -> list[str]:
    parts = parse_markup(document, is_xml=False)
    return [part.text for part in parts if isinstance(part, TextRun)]


def blocks(document: str) -> list[str]:
    parts = parse_markup(document, is_xml=False)
    raw = "".join(part.raw for part in parts if isinstance(part, Block))
    return [tag for tag in tags(raw) if re.match(r"</?(p|div|li|h1|td|pre|br|script)", tag)]


@settings(max_examples=60, deadline=None)
@given(document=documents(), links_words=st.booleans())
async def test_a_balanced_document_keeps_its_tags_its_balance_and_its_blocks(
    document: str, links_words: bool
) -> None:
    assert is_balanced(list(tokenize(document)))
    result = await translated(document, links_words=links_words)
    assert Counter(tags(result)) == Counter(tags(document))
    assert is_balanced(list(tokenize(result)))
    assert blocks(result) == blocks(document)


@settings(max_examples=40, deadline=None)
@given(document=documents())
async def test_the_text_without_tags_is_the_translation_of_the_text(document: str) -> None:
    document = document.replace("42", "cat")  # which would be the mark of a footnote
    below = FakeLinkedTranslator()
    [result] = await MarkupTranslator(below, HTML, below.limits).translate([document])
    plain = below.result(below.texts[0]).text
    assert without_spaces("".join(plain_lines(result.text))) == without_spaces(
        re.sub(r"\{\d+\}", "", plain)
    )


@settings(max_examples=60, deadline=None)
@given(document=documents())
@example('<img src="a.png"><b>dog</b><b>dog <img src="a.png"></b>')
@example("<p><b><b></b>\n  </b>text</p>")
async def test_no_white_space_is_added_beside_tags(document: str) -> None:
    document = document.replace("42", "cat")  # which would be the mark of a footnote
    # Punctuation and what is copied within a sentence join words, which are then cut apart.
    document = re.sub(r"<code>x.*?</code>|<var>n</var>", "<wbr/>", document)
    document = re.sub(r"&(amp|lt|gt);|\.\.\.", "é", document)
    # An empty element moves with its white space.
    document = re.sub(r"(?<=>)\s+(?=(<[^>]*>)*</b>)", "", document).replace("<b> </b>", "<b></b>")
    below = FakeLinkedTranslator()
    [result] = await MarkupTranslator(below, HTML, below.limits).translate([document])
    found = "\n".join(plain_lines(result.text)).split("\n")
    plain = below.result(below.texts[0]).text.split("\n")
    assert [line.split() for line in found] == [line.split() for line in plain]
    for (start, end), expected in zip(map(ends, found), map(ends, plain), strict=True):
        assert start == expected[0]
        assert end == expected[1] or not expected[1]  # before what moved behind the last word


@settings(max_examples=60, deadline=None)
@given(document=_soup)
async def test_broken_markup_survives(document: str) -> None:
    result = await translated(document)
    assert Counter(tags(result)) == Counter(tags(document))
    for name in ("b", "i", "p"):
        depths = [depth_of(each, name) for each in (document, result)]
        assert min(depths[0], default=0) <= min(depths[1], default=0)


@settings(max_examples=100)
@given(document=_soup, is_xml=st.booleans())
def test_the_parts_of_a_document_joined_are_the_document(document: str, is_xml: bool) -> None:
    assert "".join(token.raw for token in tokenize(document, is_xml=is_xml)) == document
    parts = parse_markup(document, is_xml=is_xml, ignore_tags=["i"])
    assert "".join(part.raw for part in parts) == document


@settings(max_examples=40, deadline=None)
@given(document=documents())
async def test_a_document_without_words_comes_back_as_it_is(document: str) -> None:
    document = re.sub("(?:dog|runs|text|&eacute;t|é|A&amp;B|x(?=&gt;))", "1", document)
    assert not any(map(str.isalpha, "".join(plain_lines(document))))
    assert await translated(document) == document


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("a <b>dog</b> runs", "runs's <b>dog's</b> a's"),
        ("a <b>dog runs</b> fast", "a's <b>dog's</b> fast's runs's"),
    ],
)
async def test_an_element_moves_with_its_words(document: str, expected: str) -> None:
    result = await translated(document)
    assert re.search(r"<b>[^<]*dog's", result), result


class OfSentences(FakeLinkedTranslator):
    """Copies the white space between sentences, as the sentence translator does."""

    def result(self, text: str) -> TextResult:
        pieces = LinkedText()
        target = ""
        for part in re.split(r"(?<=[.])(\s+)|^(\s+)|(\s+)$", text):
            if part and part.isspace():
                pieces.copy(part)
                target += part
            elif part:
                translation = part.replace("The", "Der").replace("dog", "Hund")
                pieces.translate(part, translation)
                target += translation
        return TextResult(target, FinishReason.EOS, 1, 1, links=pieces.links)


@pytest.mark.parametrize(
    "document",
    [
        '<p><img src="a"> The dog.</p>',
        "<p>\n  <!-- a --> The dog.</p>",
        "<i class=icon></i> The dog",
        "<a><i class=icon></i> The dog</a>",
        "<p><a><i></i>  The dog <img></a> </p>",
        "<b> </b>The dog.<b> </b>",
        "The dog.<wbr> The dog.",
        "The dog. <wbr> The dog.",
        "The dog. <wbr>The dog.",
        "<b>The dog.<wbr></b> The <i>dog</i>.",
        "<b>The dog. <wbr></b> <i><wbr> The dog.</i>",
        "The dog. <wbr>  <wbr><i></i> The <b>dog. <wbr></b>",
        "The dog. <b>  The dog. <wbr> ",
    ],
)
async def test_white_space_beside_sentences_stays_around_tags(document: str) -> None:
    below = OfSentences()
    [result] = await MarkupTranslator(below, HTML, below.limits).translate([document])
    assert result.text == document.replace("The", "Der").replace("dog", "Hund")


async def test_verbatim_elements_come_back_with_their_tags() -> None:
    document = '<p>run <code>a &amp;&amp; <b>b</b></code> or <i translate="no">Berlin</i></p>'
    below = FakeLinkedTranslator()
    [result] = await MarkupTranslator(below, HTML, below.limits).translate([document])
    assert below.texts == ["run {1} or {2}"]
    for part in ("<code>a &amp;&amp; <b>b</b></code>", '<i translate="no">Berlin</i>'):
        assert result.text.count(part) == 1


@pytest.mark.parametrize("options", [HTML, XML])
@pytest.mark.parametrize(
    "end", ["</p", "</b ", "<b", "<b\n", "<br /", '<b class="x', "<b a=1 title='y", "<b cl"]
)
async def test_a_tag_that_the_document_ends_in_is_copied(end: str, options: TextOptions) -> None:
    result = await translated(f"dog <b></b>runs {end}", options)
    assert result.endswith(f" {end}")
    assert result.count("<") == 3


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


async def test_placeholders_avoid_those_of_the_text() -> None:
    below = FakeLinkedTranslator()
    await MarkupTranslator(below, HTML, below.limits).translate(["run {1} or <code>x</code>"])
    assert below.texts == ["run {1} or {2}"]


async def test_a_lost_placeholder_is_written_all_the_same() -> None:
    class Forgetful(FakeLinkedTranslator):
        def result(self, text: str) -> TextResult:
            return super().result(text.replace("{1}", "..."))

    below = Forgetful()
    [result] = await MarkupTranslator(below, HTML, below.limits).translate(["run <code>x</code>!"])
    assert result.text.count("<code>x</code>") == 1


async def test_elements_of_a_request_are_copied() -> None:
    options = TextOptions(MimeType.XML, ("x",))
    below = FakeLinkedTranslator()
    document = "Hello <x id='7'>big</x> <y>world</y> &foo; <![CDATA[a]]>"
    [result] = await MarkupTranslator(below, options, below.limits).translate([document])
    assert below.texts == ["Hello {1} world  "]
    assert "<x id='7'>big</x>" in result.text
    assert "&foo;" in result.text


async def test_what_a_model_writes_is_no_markup() -> None:
    result = await translated("he said &lt;script&gt; &amp;lt; twice")
    assert "<script>" not in result
    assert "&lt;script&gt;" in result
    assert "&amp;lt;" in result


async def test_without_splitting_each_run_is_a_text() -> None:
    below = FakeLinkedTranslator()
    options = TranslateOptions(split_sentences=False)
    translator = MarkupTranslator(below, HTML, TranslatorLimits(max_texts=2))
    documents = ["<p>a dog</p><p>runs</p>", "<p>fast</p>", "<hr>"]
    results = await translator.translate(documents, options)
    assert below.texts == ["a dog", "runs", "fast"]
    assert len(below.options) == 2
    assert [len(tags(result.text)) for result in results] == [4, 2, 1]


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


@pytest.mark.parametrize("options", [HTML, XML])
async def test_line_breaks_and_tabs_divide_text_only_if_they_are_kept(options: TextOptions) -> None:
    document = "<p>a dog\nruns <b>on\tand</b>&#10;on</p>"
    below = FakeLinkedTranslator()
    await MarkupTranslator(below, options, below.limits).translate([document])
    assert below.texts == ["a dog runs on and on"]
    kept, below = replace(options, line_breaks=LineBreaks.KEEP), FakeLinkedTranslator()
    [result] = await MarkupTranslator(below, kept, below.limits).translate([document])
    assert below.texts == ["a dog\nruns on\nand\non"]
    assert re.findall(r"\n|\t|&#10;|</?b>|</?p>", result.text) == re.findall(
        r"\n|\t|&#10;|</?b>|</?p>", document
    )

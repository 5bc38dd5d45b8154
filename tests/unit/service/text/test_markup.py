"""Markup: each tag once, nested as before, around the words that it stood around."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.domain.requests import FinishReason
from service.text.markup.document import Block
from service.text.markup.html_parser import parse_markup
from service.text.markup.markup_translator import MarkupTranslator
from service.text.markup.tokens import Kind, MarkupToken, tokenize
from service.text.options import LineBreaks, MimeType, TextOptions
from service.translation.links import LinkedText
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import TextResult
from tests.fake_linked import FakeLinkedTranslator
from tests.unit.service.text.markup_documents import (
    HTML,
    XML,
    documents,
    plain_lines,
    tags,
    translated,
)

_soup = st.lists(
    st.sampled_from(
        """
        <b> </b> <i> </i> <p> </p> dog_ runs _ < > & &lt; " ' <a_href=' <!-- --> <code> </code>
        <img> {1} <![CDATA[
        """.split()  # noqa: SIM905
    ),
    max_size=30,
).map(lambda parts: "".join(parts).replace("_", " "))


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
    document = re.sub(r"<b></b>(?=\s)", "", document)
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

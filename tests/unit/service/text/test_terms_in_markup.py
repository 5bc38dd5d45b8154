"""Terms of a glossary in documents with markup: each is one piece, whatever it looks like."""

from __future__ import annotations

import re

import pytest

from service.glossaries.glossary import Glossary
from service.text.markup.html_parser import encode
from service.text.markup.markup_translator import MarkupTranslator
from service.text.options import MimeType, TextOptions
from service.things.scanned import TermRules
from service.things.terms_translator import TermsTranslator
from tests.fake_linked import FakeLinkedTranslator


async def translated(document: str, term: str, translation: str) -> str:
    """A document by all stages, over a translator that shuffles words."""
    below = FakeLinkedTranslator()
    glossary = Glossary.of([(term, translation)])
    terms = TermsTranslator(below, TermRules("en", "de", glossary=glossary), below.limits)
    options = TextOptions(MimeType.HTML, glossary=glossary)
    [result] = await MarkupTranslator(terms, options, below.limits).translate([document])
    assert result.error is None
    return result.text


@pytest.mark.parametrize(
    "translation",
    ["{1}", "C++ 2.0", "neues Ding", "{b}", "<b>", "&amp;", "a-b_c", "%1", "[x](y)", "A {1} B {2}"],
)
@pytest.mark.parametrize(
    ("term", "document"),
    [
        ("widget", "The <b>widget</b> runs."),
        ("big widget", "The <b>big</b> widget <i>runs</i> on."),
        ("widget", "Press <code>x</code> the widget now."),
        ("widget", "The wid<b>get</b> runs."),
        ("blue widget", "The <b>blue wid</b>get runs <code>y</code>."),
        ("new widget", "<i>The new wid</i>get<br> runs"),
    ],
)
async def test_a_term_is_one_piece_beside_any_markup(
    term: str, document: str, translation: str
) -> None:
    text = await translated(document, term, translation)
    assert text.count(encode(translation)) == 1
    for tag in re.findall("<[^>]*>", document):
        assert text.replace(encode(translation), "").count(tag) == document.count(tag)
    assert re.findall("<code>.*?</code>", text) == re.findall("<code>.*?</code>", document)


async def test_a_term_that_looks_like_a_placeholder_of_the_text_takes_nothing_away() -> None:
    text = await translated("A widget, {1} and <code>x</code> at 17:30.", "widget", "{1}")
    assert text.count("{1}") >= 1
    assert "<code>x</code>" in text
    assert "17:30" in text

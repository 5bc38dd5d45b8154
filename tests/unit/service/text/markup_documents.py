"""Random documents with markup, and their translation by a fake model."""

from __future__ import annotations

from hypothesis import strategies as st

from service.text.markup.document import TextRun
from service.text.markup.html_parser import parse_markup
from service.text.markup.markup_translator import MarkupTranslator
from service.text.markup.tokens import Kind, tokenize
from service.text.options import MimeType, TextOptions
from tests.fake_linked import FakeLinkedTranslator

HTML = TextOptions(MimeType.HTML)
XML = TextOptions(MimeType.XML)
words = st.sampled_from(("dog", "runs", "A&amp;B", "&lt;x&gt;", "&eacute;t", "42", "...", "é"))
space = st.sampled_from((" ", " ", "\n  ", "&nbsp;"))


@st.composite
def inline(draw: st.DrawFn, depth: int = 3) -> str:
    """Balanced inline content."""
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(("text", "text", "element", "atom", "verbatim", "empty")))
        if kind == "text":
            parts.append(draw(space).join(draw(st.lists(words, min_size=1, max_size=4))))
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


async def translated(document: str, options: TextOptions = HTML, **kwargs: bool) -> str:
    below = FakeLinkedTranslator(**kwargs)
    [result] = await MarkupTranslator(below, options, below.limits).translate([document])
    assert result.error is None, result.error
    assert not result.links
    return result.text


def tags(document: str, options: TextOptions = HTML) -> list[str]:
    tokens = tokenize(document, is_xml=options is XML)
    return [token.raw for token in tokens if token.kind is not Kind.TEXT]


def plain_lines(document: str) -> list[str]:
    parts = parse_markup(document, is_xml=False)
    return [part.text for part in parts if isinstance(part, TextRun)]

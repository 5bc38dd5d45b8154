"""HTML, XML and Markdown: for any input, every tag is in the output once, with the same nesting.

Translations are pretended: the words of each run in another order, linked or not. A document with
unchanged text must be returned unchanged.
"""

from __future__ import annotations

import functools
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from model.bundle.spans import Span
from service.text.markup.document import Chars, MarkupError
from service.text.markup.formats import Format, format_of
from service.text.markup.lines import TranslatedText
from service.text.markup.markup_translator import ParsedDocument, parse
from service.text.markup.tokens import Kind, MarkupToken, tokenize
from service.text.options import MimeType, TextOptions
from service.translation.links import Link
from tests.robustness.fuzz.mutations import WORDS, changed_text, odd_text
from tests.robustness.fuzz.target import expect

_FRAGMENTS = Path(__file__).with_name("fragments.tsv")
_CLOSED_TAG = re.compile(
    r"""<[^\s<>"']+(?:\s+[^\s<>"'=]+(?:="[^"]*"|='[^']*'|=[^\s<>"']+)?)*\s*/?>"""
)
_PLACEHOLDER = re.compile(r"\{\d+\}")
# The longest text that a server takes unless its operator allows more.
_MOST_CHARACTERS = 100_000
_HUGE_SHARE = 0.0005

_NAMES = ("b", "i", "a", "span", "p", "div", "li", "td", "code", "pre", "x", "script", "ns:g", "q")
_HTML_SIGNS = (
    "<b>", "</b>", "<i>", "</i>", "<p>", "</p>", "<br>", "<br/>", "<img src=a>", "<code>",
    "</code>", "<a href='>'>", '<a title="<b>">', "</a>", "<!--", "-->", "<!-- x -->", "<![CDATA[",
    "]]>", "<?php", "?>", "<!DOCTYPE x [", "]>", "<script>", "</script>", "<style>", "<textarea>",
    "</title>", "&amp;", "&lt", "&nbsp;", "&#60;", "&#x110000;", "&nosuch;", "&#0;", "<", ">", "</",
    "<>", "</>", "< b>", '"', "'", "=", "<b ", "<B>", "</B >", "<i translate=no>", "{1}", "{2}",
    "<span class='notranslate'>", "</span>", "<x/>", "<svg>", "</svg>", "\u0130", "<\u0130>",
)  # fmt: skip
_MARKDOWN_SIGNS = (
    "# ", "- ", "* ", "1. ", "> ", "\n", "\n\n", "    ", "\t", "```", "~~~", "`", "``", "*", "**",
    "_", "__", "***", "~~", "[", "]", "](", ")", "![", "<b>", "</b>", "<http://x>", "|", "| --- |",
    "---", "===", "[a]: /x", "[^1]", "[^1]: ", "\\", "\\*", "&amp;", "<!--", "-->", "<script>",
    "---\na: b\n---\n", "- [x] ", ":::", "$x$", "https://a.b/c_d_e", "<", ">", "(", "!", "\\\n",
    "  \n", "\r\n",
)  # fmt: skip


@functools.cache
def _fragments() -> Sequence[str]:
    lines = _FRAGMENTS.read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[1] for line in lines if not line.startswith("#")]


def document_of(rng: random.Random, is_markdown: bool) -> str:
    """A document: a changed sample, a generated one, random signs, or a huge one."""
    signs = _MARKDOWN_SIGNS if is_markdown else _HTML_SIGNS
    if rng.random() < _HUGE_SHARE:
        return _huge(rng, signs)
    kind = rng.random()
    if kind < 0.25:
        return changed_text(rng, rng.choice(_fragments()), signs)
    if kind < 0.3:
        return odd_text(rng)
    if kind < 0.65:
        generated = _lines(rng, signs) if is_markdown else _elements(rng, 4)
        return changed_text(rng, generated, signs) if rng.random() < 0.5 else generated
    parts = (rng.choice(signs if rng.random() < 0.6 else WORDS) for _ in range(rng.randint(1, 40)))
    return rng.choice(("", "", " ")).join(parts)


def _elements(rng: random.Random, depth: int) -> str:
    parts = []
    for _ in range(rng.randint(0, 4)):
        if depth == 0 or rng.random() < 0.5:
            parts.append(rng.choice(WORDS) + rng.choice(("", " ", "\n")))
            continue
        name = rng.choice(_NAMES)
        attributes = rng.choice(("", "", ' id="a&amp;b"', " title='>'", ' translate="no"', " x"))
        parts.append(f"<{name}{attributes}>{_elements(rng, depth - 1)}</{name}>")
        parts.append(rng.choice(("", " ", "<br>", "<!-- <b> -->", '<img alt="x>y">')))
    return "".join(parts)


def _lines(rng: random.Random, signs: Sequence[str]) -> str:
    lines = []
    for _ in range(rng.randint(1, 8)):
        words = (
            rng.choice(signs if rng.random() < 0.3 else WORDS) for _ in range(rng.randint(0, 9))
        )
        lines.append(rng.choice(("", "", "# ", "- ", "  - ", "> ", "| ", "1. ")) + " ".join(words))
    return "\n".join(lines)


def _huge(rng: random.Random, signs: Sequence[str]) -> str:
    """A document up to the limit: a few repeated signs, perhaps around others."""
    unit = "".join(rng.choice((*signs, "a", " ")) for _ in range(rng.randint(1, 3))) or "<b>"
    count = _MOST_CHARACTERS // len(unit)
    if rng.random() < 0.3:
        count //= 2
        return unit * count + "text" + unit.replace("<", "</") * (count // 2)
    return rng.choice(("", "a ")) + unit * count + rng.choice(("", "a", ">", "-->"))


class _Markup:
    """A format of texts."""

    mime_type: ClassVar[MimeType]

    def __init__(self) -> None:
        ignored = () if self.mime_type is MimeType.MARKDOWN else ("x",)
        self._format: Format = format_of(TextOptions(self.mime_type, ignored))

    def generate(self, rng: random.Random) -> tuple[str, bool]:
        """Generate a document, and whether the words of its translation are linked."""
        text = document_of(rng, self.mime_type is MimeType.MARKDOWN)
        # Invalid Unicode is refused earlier.
        return text.encode("utf-8", "replace").decode(), rng.random() < 0.7

    def run(self, given: tuple[str, bool]) -> str:
        """Parse the document, write it unchanged, and write it with another text."""
        text, links_words = given
        try:
            document = parse(text, self._format)
        except MarkupError as exc:
            expect(bool(str(exc)), "a refusal without a reason", text)
            return "refused"
        same = [TranslatedText(tree.text, ()) for tree in document.trees]
        expect(
            document.render(same, self._format) == text, "an untranslated document changed", text
        )
        translate = functools.partial(_shuffled, links_words=links_words)
        written = document.render([translate(tree.text) for tree in document.trees], self._format)
        self._check(text, written, document)
        return "written" if document.trees else "no text"

    def _check(self, text: str, written: str, document: ParsedDocument) -> None:
        raise NotImplementedError


class _Tagged(_Markup):
    def _check(self, text: str, written: str, document: ParsedDocument) -> None:
        is_xml = self.mime_type is MimeType.XML
        before, evidence = list(tokenize(text, is_xml=is_xml)), (text, written)
        tags = Counter(token.raw for token in before if token.kind is not Kind.TEXT)
        for raw, count in tags.items():
            expect(written.count(raw) >= count, "a tag was lost or changed", (raw, *evidence))
        # Where a quotation mark is not closed, or a section, what is a tag depends on what follows.
        if not all(map(_is_closed, before)):
            return
        after = list(tokenize(written, is_xml=is_xml))
        found = Counter(token.raw for token in after if token.kind is not Kind.TEXT)
        expect(found == tags, "a tag was doubled, or made", (found - tags, *evidence))
        if _is_balanced(before, is_xml):
            expect(_is_balanced(after, is_xml), "balanced markup lost its balance", evidence)


class Html(_Tagged):
    """HTML."""

    name: ClassVar[str] = "html"
    share: ClassVar[float] = 14
    what: ClassVar[str] = "HTML in texts: parsed, written unchanged, written with moved words"
    mime_type: ClassVar[MimeType] = MimeType.HTML


class Xml(_Tagged):
    """XML in texts, with an ignored tag."""

    name: ClassVar[str] = "xml"
    share: ClassVar[float] = 10
    what: ClassVar[str] = "XML in texts, likewise, with an ignored tag"
    mime_type: ClassVar[MimeType] = MimeType.XML


class Markdown(_Markup):
    """Markdown."""

    name: ClassVar[str] = "markdown"
    share: ClassVar[float] = 12
    what: ClassVar[str] = "Markdown in texts, likewise"
    mime_type: ClassVar[MimeType] = MimeType.MARKDOWN

    def _check(self, text: str, written: str, document: ParsedDocument) -> None:
        wanted: Counter[str] = Counter()
        for tree in document.trees:
            wanted.update(item.raw for item in tree.run.items if not isinstance(item, Chars))
        for raw, count in wanted.items():
            expect(written.count(raw) >= count, "inline markup was lost", (raw, text, written))


def _is_closed(token: MarkupToken) -> bool:
    if token.kind is Kind.TEXT:
        return "<" not in token.raw
    if token.kind in (Kind.START, Kind.EMPTY):
        return _CLOSED_TAG.fullmatch(token.raw) is not None
    return token.is_complete


def _is_balanced(tokens: Sequence[MarkupToken], is_xml: bool) -> bool:
    path: list[str] = []
    for token in tokens:
        if token.kind is Kind.START and (is_xml or token.name not in ("img", "br", "wbr")):
            path.append(token.name)
        elif token.kind is Kind.END and (not path or path.pop() != token.name):
            return False
    return not path


def _shuffled(text: str, links_words: bool) -> TranslatedText:
    """The words of a line in another order, each marked, and their links."""
    words = [Span(*match.span()) for match in re.finditer(r"\S+", text)]
    random.Random(text).shuffle(words)
    target: list[str] = []
    links, length = [], 0
    for word in words:
        source = text[word.start : word.end]
        written = source if _PLACEHOLDER.fullmatch(source) else source + "'s"
        start = length + bool(target)
        target.append(written)
        length = start + len(written)
        links.append(Link(word, Span(start, length)))
    joined = " ".join(target)
    whole = [Link(Span(0, len(text)), Span(0, len(joined)))]
    return TranslatedText(joined, links if links_words else whole)


TARGETS: Sequence[Callable[[], _Markup]] = (Html, Xml, Markdown)

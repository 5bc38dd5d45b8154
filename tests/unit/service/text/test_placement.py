"""Where elements go in a translation, by links that a test gives."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from model.bundle.spans import Span
from service.text.markup.formats import format_of
from service.text.markup.html_parser import encode
from service.text.markup.markup_translator import parse
from service.text.markup.rendering import render
from service.text.options import MimeType, TextOptions
from service.translation.links import Link


def rendered(document: str, target: str, pairs: Sequence[tuple[str, str]]) -> str:
    """A document of one run, with the translation of its text and the words that are linked."""
    [tree] = parse(document, format_of(TextOptions(mime_type=MimeType.HTML))).trees

    def span(text: str, word: str) -> Span:
        start = text.index(word)
        return Span(start, start + len(word))

    links = [Link(span(tree.text, one), span(target, other)) for one, other in pairs]
    return render(tree, target, sorted(links, key=lambda link: link.target), encode)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            "<a><img><span>Download the file</span></a>",
            "<a><img><span>Die Datei herunterladen</span></a>",
        ),
        (
            "<a><span>Download the file</span><img></a>",
            "<a><span>Die Datei herunterladen</span><img></a>",
        ),
    ],
)
def test_an_image_stays_on_its_side_of_an_element_whose_words_change_places(
    document: str, expected: str
) -> None:
    pairs = [("the", "Die"), ("file", "Datei"), ("Download", "herunterladen")]
    assert rendered(document, "Die Datei herunterladen", pairs) == expected


@pytest.mark.parametrize(
    ("document", "target", "pairs", "expected"),
    [
        # A word without a link next to a placeholder is kept.
        (
            "Run <code>make</code>",
            "Führen Sie {1} aus",
            [("Run", "Führen"), ("{1}", "{1}")],
            "Führen Sie <code>make</code> aus",
        ),
        (
            "<code>make</code> works",
            "Das {1} funktioniert",
            [("{1}", "{1}"), ("works", "funktioniert")],
            "Das <code>make</code> funktioniert",
        ),
        # Quotation marks stay outside or inside.
        (
            "the '<i>new</i>' plan",
            'der "Neuen"-Plan',
            [("the", "der"), ("new", '"Neuen"-Plan'), ("plan", '"Neuen"-Plan')],
            'der "<i>Neuen</i>"-Plan',
        ),
        (
            'Your "<b>old</b>" plan.',
            'Dein "alter" Plan.',
            [("Your", "Dein"), ('"old"', '"alter"'), ("plan", "Plan"), (".", ".")],
            'Dein "<b>alter</b>" Plan.',
        ),
        (
            'said <i>"Anna"</i>.',
            "sagte „Anna“.",
            [("said", "sagte"), ("Anna", "Anna"), ('".', "“.")],
            "sagte <i>„Anna“</i>.",
        ),
        (
            '<b>a "big" dog</b> runs',
            "ein „großer“ Hund läuft",
            [("a", "ein"), ('"big"', "„großer“"), ("dog", "Hund"), ("runs", "läuft")],
            "<b>ein „großer“ Hund</b> läuft",
        ),
        (
            'the "<b>dog</b>" and <i>"cat"</i>',
            "die „Katze“ und der „Hund“",
            [("the", "die"), ("cat", "Katze"), ("and", "und"), ("dog", "Hund")],
            "die <i>„Katze“</i> und der „<b>Hund</b>“",
        ),
        # Links that cannot be right move nothing: a sign comes from no word,
        (
            "a house (new<sup>6</sup>) is red",
            "ein Haus (neu) ist rot",
            [("new", "neu"), ("new", ")"), ("is", "ist"), ("red", "rot")],
            "ein Haus (neu<sup>6</sup>) ist rot",
        ),
        (
            "see the dog<sup>1</sup>, old and big",
            "siehe Hund, alt und groß",
            [("dog", "Hund"), ("dog", ","), ("old", "alt"), ("and", "und")],
            "siehe Hund<sup>1</sup>, alt und groß",
        ),
        # nor another word from one that is copied.
        (
            "Use <a>pip</a> and <b>git</b>",
            "Verwenden Sie pip und git",
            [("pip", "Verwenden"), ("Use", "Sie"), ("pip", "pip"), ("and", "und"), ("git", "git")],
            "Verwenden Sie <a>pip</a> und <b>git</b>",
        ),
        (
            "Use <a>x.org</a>.",
            "x.org nutzen.",
            [("x.org", "x.org"), ("x.org.", "nutzen"), ("x.org.", ".")],
            "<a>x.org</a> nutzen.",
        ),
        # An element between quotation marks stays between them.
        (
            'a "<i>new</i>" garden',
            "ein „new“garten",
            [("a", "ein"), ("garden", "„"), *((w, "new“garten") for w in ("new", "garden", '" '))],
            "ein „<i>new</i>“garten",
        ),
        (
            'the "<b>big</b>" house of Anna',
            "Annas Haus „Big“",
            [("Anna", "Annas"), ("big", "Haus"), ("house", "Big")],
            "Annas Haus „<b>Big</b>“",
        ),
        (
            'the "<b>old</b>" and the "<i>new</i>" plan',
            "der „alte“ und der „neue“ Plan",
            [("old", "alte"), ("new", "Plan"), ("plan", "neue")],
            "der „<b>alte</b>“ und der „<i>neue</i>“ Plan",
        ),
        (
            '"The <b>old</b> house", he said',
            "Er sagte: „Das alte Haus“",
            [("old", "sagte"), ("house", "Haus"), ("The", "Das")],
            "Er sagte: „Das <b>alte</b> Haus“",
        ),
    ],
)
def test_each_element_goes_where_its_words_went(
    document: str, target: str, pairs: Sequence[tuple[str, str]], expected: str
) -> None:
    assert rendered(document, target, pairs) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Hallo {1}} links", "Hallo <x/> links"),
        ("Hallo {{1} links", "Hallo <x/> links"),
        ("Hallo {1} links {1", "Hallo <x/> links "),
        ("Hallo {1}{1} 7} links", "Hallo <x/> 7 links"),
    ],
)
def test_remains_of_placeholders_are_dropped(answer: str, expected: str) -> None:
    document = "Hello <code>x</code> left"
    expected = expected.replace("<x/>", "<code>x</code>")
    assert rendered(document, answer, [("Hello", "Hallo")]) == expected

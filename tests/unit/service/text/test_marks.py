"""Marks that are glued to a word: footnotes, indices, ruby. Each stays there, with its content."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.text.markup.document import Atom, Chars, Item, TextRun, Verbatim
from service.text.markup.html_parser import parse_markup
from service.text.markup.marks import with_marks
from service.text.markup.markup_translator import MarkupTranslator
from service.text.options import MimeType, TextOptions
from tests.fake_linked import FakeLinkedTranslator

HTML = TextOptions(MimeType.HTML)

MARKS = [
    "<sup>1</sup>",
    "<sup>1,2</sup>",
    "<sup>a</sup>",
    "<sup>TM</sup>",
    "<sub>i</sub>",
    "<sup>[<i>citation needed</i>]</sup>",
    '<sup id="c"><a href="#n">[3]</a></sup>',
    '<a href="#n"><sup>note 2</sup></a>',
    '<a href="#n">[12]</a>',
    "<span>3</span>",
    "<g>†</g>",
    "<rt>きょうと</rt>",
]
_marked = st.lists(
    st.tuples(
        st.sampled_from(["dog", "runs", "cold", "é"]),
        st.lists(st.sampled_from(MARKS), max_size=2).map("".join),
    ),
    min_size=1,
    max_size=6,
)


async def translated(document: str) -> tuple[str, str]:
    """The translation, and what the translator below was given."""
    below = FakeLinkedTranslator()
    [result] = await MarkupTranslator(below, HTML, below.limits).translate([document])
    assert result.error is None
    return result.text, below.texts[0]


@settings(max_examples=60, deadline=None)
@given(words=_marked)
async def test_a_mark_stays_behind_its_word(words: list[tuple[str, str]]) -> None:
    words = [(f"{word}{number}x", mark) for number, (word, mark) in enumerate(words)]
    document = " ".join(word + mark for word, mark in words)
    text, given_below = await translated(f"<p>{document}</p>")
    assert given_below == " ".join(word for word, _ in words)
    for word, mark in words:
        [_, rest] = text.split(f"{word}'s")
        assert rest.startswith((f"{mark} ", f"{mark}</p>")), text


@pytest.mark.parametrize(
    ("document", "below"),
    [
        ("H<sub>2</sub>O is wet", "{1} is wet"),
        ("the C<sub>6</sub>H<sub>12</sub>O<sub>6</sub>.", "the {1}."),
        ("<b>H<sub>2</sub>O</b> is wet", "{1} is wet"),
        ("a H<span>2</span>O", "a {1}"),
        ("CO<sub>2</sub> is", "CO is"),
        # No marks.
        ("un<b>believ</b>able", "unbelievable"),
        ("see <b>5</b> dogs", "see 5 dogs"),
        ("$<b>5</b> or 1,<b>250</b>", "$5 or 1,250"),
        ("a dog<b>.</b>", "a dog."),
        ("(<i>5</i>)", "(5)"),
        ('the "<b>3</b>" dogs', 'the "3" dogs'),
        ("a dog <sup>runs</sup> on", "a dog runs on"),
        ("a dog<sup>which runs over the field</sup> on", "a dogwhich runs over the field on"),
        # Links that are hashtags, mentions or URLs.
        ("my <a>#<span>cat</span></a> and <a>#dog</a>", "my {1} and {2}"),
        ("<span><a>@<span>tom</span></a></span> runs", "{1} runs"),
        ("see <a><i>https://</i>a.example/b<i>c</i></a> now", "see {1} now"),
        ("see <a># cats</a> now", "see # cats now"),
        # Neighbours that are copied.
        ("a <code>x</code><code>y</code> b", "a {1} b"),
        ("a <code>x</code> <code>y</code> b", "a {1} {2} b"),
    ],
)
async def test_what_the_model_reads(document: str, below: str) -> None:
    text, given_below = await translated(document)
    assert given_below == below
    if "{1}" in below:
        copied = re.findall(r"<[^>]+>|[^<\s]+", document)
        assert all(part in text for part in copied if part.startswith("<"))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("<sup>1</sup>See the dog", "<sup>1</sup>"),
        ("<p>a. <sup>2</sup>See it</p>", " <sup>2</sup>"),
    ],
)
async def test_a_mark_at_the_beginning_stays_there(document: str, expected: str) -> None:
    text, _ = await translated(document)
    assert expected in text


async def test_a_formula_is_copied() -> None:
    formula = "C<sub>6</sub>H<sub>12</sub>O<sub>6</sub>"
    text, _ = await translated(f"<p>a dog eats {formula}, and runs.</p>")
    assert text.count(formula) == 1


@settings(max_examples=100)
@given(
    document=st.lists(
        st.sampled_from(
            [*MARKS, "H", "2", " ", "<b>", "</b>", "<sup>", "</sup>", "&amp;", "<img>", "[3]", "#a"]
        ),
        max_size=12,
    ).map("".join)
)
def test_nothing_of_a_run_is_lost(document: str) -> None:
    for part in parse_markup(document, is_xml=False):
        if isinstance(part, TextRun):
            assert with_marks(part).raw == part.raw


@pytest.mark.usefixtures("few_objects")
def test_nested_and_repeated_marks_take_linear_time() -> None:
    def seconds(count: int) -> float:
        documents = ("a<sup>1</sup>" * count, "<b>" * 99 + "x<sub>1</sub>y " * count + "</b>" * 99)
        runs = [
            part
            for document in documents
            for part in parse_markup(document, is_xml=False)
            if isinstance(part, TextRun)
        ]
        started = time.thread_time()
        for run in runs:
            with_marks(run)
        return time.thread_time() - started

    seconds(100)
    assert seconds(8000) < 40 * max(seconds(800), 0.002)


def test_plain_runs_are_as_they_were() -> None:
    run = TextRun([Chars("a dog", "a dog")])
    assert with_marks(run) is run
    items: list[Item] = [Chars("a ", "a "), Verbatim("<i>x</i>"), Atom("<img>")]
    assert list(with_marks(TextRun(items)).items) == items

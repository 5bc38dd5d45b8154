"""Line breaks of plain text: kept, joined, or joined where the text is wrapped."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidArgumentError
from service.text.line_breaks import LineJoiner, joined_lines
from service.text.options import LineBreaks, MimeType, TextOptions
from tests.fake_linked import FakeLinkedTranslator

MAIL = """Dear Anna,

thank you for the long letter which arrived here on Monday morning. I
have read it twice, and I will answer all of your questions as soon as
I am back from the mountains.

Greetings
Tom
--\x20
Tom Miller
12 Long Road
"""
MAIL_JOINED = """Dear Anna,

thank you for the long letter which arrived here on Monday morning. I have read it twice, and I \
will answer all of your questions as soon as I am back from the mountains.

Greetings
Tom
--\x20
Tom Miller
12 Long Road
"""
POEM = """The old dog sleeps beside the open door and dreams
of rabbits
in the field,
and all the other things that dogs may dream about.
"""
ADDRESS = "Department of Agriculture, Forestry and Fisheries\nMain Building, Third Floor, Room 12\n"


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("The old dog\nis running.", "The old dog is running."),
        ("The old dog\r\nis running.\r\n", "The old dog is running.\r\n"),
        ("The old dog \n   is running.", "The old dog is running."),
        ("One.\n\nTwo\nthree.", "One.\n\nTwo three."),
        ("- one\n  item\n- two", "- one item\n- two"),
        ("1. one\nitem\n2. two", "1. one item\n2. two"),
        ("# Title\nText\nmore", "# Title\nText more"),
        ("> He said\n> that.\nI did\nnot.", "> He said that.\nI did not."),
        ("> > He said\n> > that.\n> No.", "> > He said that.\n> No."),
        ("---\nText\nmore\n---", "---\nText more\n---"),
        ("猫は\n走る。", "猫は走る。"),
        ("", ""),
        ("\n\n", "\n\n"),
        ("one", "one"),
    ],
)
def test_lines_of_a_paragraph_are_joined(text: str, joined: str) -> None:
    assert joined_lines(text, LineBreaks.JOIN, "en") == joined
    assert joined_lines(text, LineBreaks.KEEP, "en") == text


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        (MAIL, MAIL_JOINED),
        (MAIL.replace("\n", "\r\n"), MAIL_JOINED.replace("\n", "\r\n")),
        (POEM, POEM),
        (ADDRESS, ADDRESS),
        ("Name: Anna\nAge: 30\nTown: Rome", "Name: Anna\nAge: 30\nTown: Rome"),
    ],
)
def test_only_wrapped_paragraphs_are_joined_by_themselves(text: str, joined: str) -> None:
    assert joined_lines(text, LineBreaks.AUTO, "en") == joined


def test_quotes_in_a_mail_are_joined() -> None:
    wrapped = MAIL_JOINED.splitlines()[2]
    [first, second] = (line for line in MAIL.splitlines()[2:4])
    text = f"> {first}\n> {second}\n"
    joined = joined_lines(text, LineBreaks.AUTO, "en")
    assert joined == f"> {first} {second}\n"
    assert joined[2:].strip() in wrapped


@given(text=st.text(alphabet="ab >-#1.\n\r\t", max_size=80), mode=st.sampled_from(LineBreaks))
def test_only_white_space_and_marks_of_quotes_change(text: str, mode: LineBreaks) -> None:
    joined = joined_lines(text, mode, "en")
    assert "".join(joined.replace(">", "").split()) == "".join(text.replace(">", "").split())
    assert joined_lines(joined, LineBreaks.JOIN, "en") == joined_lines(text, LineBreaks.JOIN, "en")


@pytest.mark.usefixtures("few_objects")
def test_time_is_linear() -> None:
    def seconds(count: int) -> float:
        text = "> a word of a line\n" * count
        started = time.thread_time()
        joined_lines(text, LineBreaks.JOIN, "en")
        return time.thread_time() - started

    seconds(100)
    assert seconds(20_000) < 40 * max(seconds(2_000), 0.002)


async def test_the_translator_below_gets_joined_texts() -> None:
    below = FakeLinkedTranslator()
    joiner = LineJoiner(below, LineBreaks.JOIN, below.limits, "en")
    await joiner.translate(["The dog\nruns.", "one"])
    assert below.texts == ["The dog runs.", "one"]
    events = [event async for event in joiner.stream("The dog\nruns.")]
    assert events
    with pytest.raises(InvalidArgumentError, match=r"contents\[0\]: 100,001 characters"):
        await joiner.translate(["x" * 100_001])


def test_markdown_keeps_its_own_rules() -> None:
    with pytest.raises(InvalidArgumentError, match="line_breaks"):
        TextOptions(MimeType.MARKDOWN, line_breaks=LineBreaks.KEEP)
    TextOptions(MimeType.MARKDOWN, line_breaks=LineBreaks.JOIN)

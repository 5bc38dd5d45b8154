"""Segmentation: nothing of a text is lost, and it is cut where a reader would cut it."""

from __future__ import annotations

import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st

from service.translation.line_markers import opening_length
from service.translation.segmentation import (
    SourceSentence,
    _lines,
    _sentence_lengths,
    split_long,
    split_text,
    whole_text,
)

# Letters, marks, quotes and every kind of white space that has led a splitter astray.
TRICKY = st.text(
    st.sampled_from(
        "abAI .!?,;:\t\n\r\v\x1c\x85\u2028\u3000\xa0\"'()[]1i。、😀é…“”«»「」-–*ß\u0301\u200d"
    )
    | st.characters(codec="utf-8"),
    max_size=80,
)
LANGUAGE = st.sampled_from(["en", "de", "de-AT", "EN", "fr", "ja", "zh", "hi", "ar", "xx", ""])


def joined(segments: list[SourceSentence]) -> str:
    return "".join(segment.separator + segment.text for segment in segments)


def check(text: str, segments: list[SourceSentence]) -> None:
    assert joined(segments) == text
    for segment in segments:
        assert segment.text == segment.text.strip()
    assert all(segment.text for segment in segments[:-1])


def texts(segments: list[SourceSentence]) -> list[str]:
    return [segment.text for segment in segments]


@given(text=TRICKY, language=LANGUAGE)
def test_every_text_comes_together_again(text: str, language: str) -> None:
    check(text, split_text(text, language))
    check(text, whole_text(text, language))
    assert len(whole_text(text, language)) <= 2


@given(text=TRICKY | st.text("- *1.#>a)\n\t", max_size=30))
def test_what_opens_a_line_is_like_white_space(text: str) -> None:
    plain = ""
    for line, line_break in _lines(text):
        end = opening_length(line, "en")
        plain += " " * end + line[end:] + line_break
    assert all(not segment.separator.strip() for segment in split_text(plain, "en"))
    assert texts(split_text(text, "en")) == texts(split_text(plain, "en"))


@given(text=TRICKY, language=LANGUAGE, limit=st.integers(1, 20))
def test_long_texts_come_together_again_and_fit(text: str, language: str, limit: int) -> None:
    text = text.strip()

    def count_tokens(part: str) -> int:
        return len(part.strip())

    segments = split_long(text, language, count_tokens, limit)
    check(text, segments)
    assert all(count_tokens(segment.text) <= max(limit, 1) for segment in segments)


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        (
            "en",
            "Mr. Smith paid $3.50 for it, e.g. in the U.S. market. He left! Did he? Yes.",
            [
                "Mr. Smith paid $3.50 for it, e.g. in the U.S. market.",
                "He left!",
                "Did he?",
                "Yes.",
            ],
        ),
        (
            "de",
            "Dr. Müller kam am 3. Mai mit z.B. dem Zug. Er ging.",
            ["Dr. Müller kam am 3. Mai mit z.B. dem Zug.", "Er ging."],
        ),
        ("en", 'He said: "Stop. Now." Then he left.', ['He said: "Stop. Now."', "Then he left."]),
        ("ja", "こんにちは。元気ですか？", ["こんにちは。", "元気ですか？"]),
        ("en", "no full stop\nnext line\r\n\r\nlast", ["no full stop", "next line", "last"]),
        ("en", "One.  Two.\tThree.", ["One.", "Two.", "Three."]),
        ("en", "Name\tPrice of it\tRed", ["Name", "Price of it", "Red"]),
        ("en", "Monday\t\tThe shop is open\t9:00", ["Monday", "The shop is open", "9:00"]),
        ("en", "- [ ] One. Two.\n  1. Three.\n# Four", ["One.", "Two.", "Three.", "Four"]),
        ("de", "1. Mai ist ein Feiertag.", ["1. Mai ist ein Feiertag."]),
        ("de", "Er kam am 30. Mai, sagt er. Er ging.", ["Er kam am 30. Mai, sagt er.", "Er ging."]),
        ("de", "Es war 1990. Mai, so hieß sie.", ["Es war 1990.", "Mai, so hieß sie."]),
        ("de", "1. Öffne die Tür.\n2. Geh.", ["1.", "Öffne die Tür.", "2.", "Geh."]),
    ],
)
def test_sentences(language: str, text: str, sentences: list[str]) -> None:
    assert texts(split_text(text, language)) == sentences


def test_a_space_of_several_bytes_after_an_initial(caplog: pytest.LogCaptureFixture) -> None:
    # sentencex panics at it. When a later one does not, the work-around can go.
    text = "This is plan A\xa0. It works. Here is plan B."
    with pytest.raises(BaseException, match="char boundary"):
        sentencex.segment("en", text)
    plain = [
        part.replace(" .", "\xa0.") for part in texts(split_text(text.replace("\xa0", " "), "en"))
    ]
    assert texts(split_text(text, "en")) == plain
    assert len(plain) > 1
    assert not caplog.records


def test_a_panic_of_the_splitter_leaves_the_line_whole(caplog: pytest.LogCaptureFixture) -> None:
    assert _sentence_lengths("Plan A\xa0. Next one.", "en") == [18]
    assert "cannot cut" in caplog.text


def test_windows_cut_where_the_whole_would_be_cut() -> None:
    numbers = ["This is sentence number " + str(n) + ", with a tail." for n in range(2000)]
    assert texts(split_text(" ".join(numbers), "en")) == numbers


# --- what is too long ----------------------------------------------------------------------------


def count_words(text: str) -> int:
    return len(text.split())


def test_cut_at_clauses_before_words() -> None:
    text = "one two three four, five six; seven eight nine ten eleven twelve thirteen fourteen"
    assert texts(split_long(text, "en", count_words, 6)) == [
        "one two three four, five six;",
        "seven eight nine ten",
        "eleven twelve thirteen fourteen",
    ]


def test_cut_at_sentences_before_clauses() -> None:
    text = "One, two three. Four five, six. Seven."
    assert texts(split_long(text, "en", count_words, 4)) == [
        "One, two three.",
        "Four five, six. Seven.",
    ]


def test_portions_are_about_equal() -> None:
    text = " ".join(["word"] * 101)
    sizes = [count_words(part) for part in texts(split_long(text, "en", count_words, 100))]
    assert sizes == [51, 50]


@pytest.mark.parametrize(
    "cluster", ["e\u0301", "\U0001f469\u200d\U0001f680", "\U0001f44b\U0001f3fd", "कि"]
)
def test_no_character_is_parted_from_its_marks(cluster: str) -> None:
    segments = split_long(cluster * 100, "en", len, 17)
    assert all(len(segment.text) % len(cluster) == 0 for segment in segments)


@pytest.mark.parametrize(
    "unit",
    [
        "x",
        "a. ",
        "Hi there. ",
        "hello, ",
        "word ",
        "😀",
        "「a。",
        "a,",
        "a\n",
        "\u0301",
        " ",
        "“a. ",
        "你好",
        "A\xa0.",
    ],
)
def test_a_hundred_thousand_characters_take_linear_work(unit: str) -> None:
    """Work is counted in characters that are handed to the tokenizer, not in seconds."""
    work = 0

    def count_tokens(part: str) -> int:
        nonlocal work
        work += len(part)
        return len(part)

    text = (unit * 100_000)[:100_000].strip()
    assert joined(split_long(text, "en", count_tokens, 127)) == text
    assert work < 20 * 100_000

"""Parts of a text that a translation keeps: line markers, and copied sentences.

The scripted model says everything twice, so that translated and kept parts can be distinguished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.bundle.tokenizer import Tokenizer
from service.domain.requests import FinishReason, SearchOptions
from service.translation.options import TranslateOptions
from tests.unit.service.translation.test_line_markers import OPENINGS
from tests.unit.service.translation.test_verbatim import CODE, NO_LATIN
from tests.unit.service.translation.translating import streamed, translating

TRANSLATED = ("A dog runs.", "Two men!", "a green field", "It is 12 o'clock", "-5 runs", "*A* dog")
COPIED = ("", "12.", "12:30", "😀", "你好，世界。", "Где живёт?", "1,250.50 €", *CODE)
BREAKS = st.sampled_from(["\n", "\n\n", "\r\n", "\n \n", "\u2028"])
# Markers, a sentence, whether it is translated, white space at the end, and a line break.
LINES = st.lists(
    st.tuples(
        OPENINGS,
        st.sampled_from([(text, True) for text in TRANSLATED])
        | st.sampled_from([(text, False) for text in COPIED]),
        st.sampled_from(["", " ", "\t"]),
        BREAKS,
    ),
    max_size=6,
)


def twice(source_ids: tuple[int, ...]) -> Sequence[int]:
    """The source said twice, EOS last."""
    return (*source_ids[:-1], *source_ids)


def said_twice(tokenizer: Tokenizer, text: str) -> str:
    return tokenizer.decode([*tokenizer.encode(text)] * 2)


@settings(max_examples=60)
@given(lines=LINES)
def test_lines_keep_their_markers_and_white_space(
    tokenizer: Tokenizer, lines: list[tuple[str, tuple[str, bool], str, str]]
) -> None:
    def text(*, is_translated: bool) -> str:
        return "".join(
            opening
            + (said_twice(tokenizer, said) if is_translated and is_words else said)
            + end
            + line_break
            for opening, (said, is_words), end, line_break in lines
        )

    async def check() -> None:
        options = TranslateOptions(num_hypotheses=1)
        async with translating(tokenizer, twice) as setup:
            [result] = await setup.translator.translate([text(is_translated=False)], options)
            deltas, summary = await streamed(setup.translator, text(is_translated=False))
        assert "".join(deltas) == summary.text == result.text == text(is_translated=True)
        sentences = [said for _, (said, is_words), _, _ in lines if is_words]
        assert [sentence.source_text for sentence in result.sentences] == sentences
        num_tokens = sum(len(tokenizer.encode(sentence)) for sentence in sentences)
        assert (result.num_source_tokens, result.num_target_tokens) == (num_tokens, 2 * num_tokens)
        assert (summary.num_source_tokens, result.was_split) == (num_tokens, False)

    asyncio.run(check())


@settings(max_examples=50)
@given(text=st.text(NO_LATIN.filter(lambda character: character != "\0")))
def test_what_has_no_letter_of_the_language_comes_back(tokenizer: Tokenizer, text: str) -> None:
    async def check() -> None:
        async with translating(tokenizer, twice) as setup:
            for split in (True, False):
                options = TranslateOptions(split_sentences=split)
                [result] = await setup.translator.translate([text], options)
                deltas, _ = await streamed(setup.translator, text, options)
                assert "".join(deltas) == result.text == text
                assert result.finish_reason is FinishReason.EOS
            assert setup.runner.plans == []

    asyncio.run(check())


async def test_sentences_of_one_line_are_copied_one_by_one(tokenizer: Tokenizer) -> None:
    text = "A dog runs. 12. Two men! tom@example.com."
    async with translating(tokenizer, twice) as setup:
        [result] = await setup.translator.translate([text])
    assert result.text == "A dog runs. A dog runs. 12. Two men! Two men! tom@example.com."


async def test_a_whole_text_keeps_what_it_begins_with(tokenizer: Tokenizer) -> None:
    whole = TranslateOptions(split_sentences=False)
    texts = ["\n - [ ] A dog\nruns.\n", "- https://example.com\n", "- A dog\n- runs"]
    async with translating(tokenizer, twice) as setup:
        results = await setup.translator.translate(texts, whole)
    assert [result.text for result in results] == [
        "\n - [ ] A dog runs. A dog runs.\n",
        texts[1],
        "- A dog - runs A dog - runs",
    ]


async def test_a_prefix_is_for_the_first_sentence_that_is_translated(tokenizer: Tokenizer) -> None:
    options = TranslateOptions(target_prefix="A man", search=SearchOptions(min_new_tokens=3))
    async with translating(tokenizer) as setup:
        results = await setup.translator.translate(["- 12\n- A man\n- runs", "- 12"], options)
        deltas, _ = await streamed(setup.translator, "- 12\n- A man\n- runs", options)
    assert results[0].text == "".join(deltas)
    assert results[0].text.startswith("- 12\n- A man")
    assert results[0].text.endswith("\n- runs")
    assert results[1].text == "- 12"


async def test_of_a_sentence_that_is_cut_numbers_are_copied(tokenizer: Tokenizer) -> None:
    text = "- A dog runs " + "12, " * 100 + "12"
    async with translating(tokenizer, twice, max_positions=32) as setup:
        [result] = await setup.translator.translate([text], TranslateOptions(max_new_tokens=32))
    assert result.was_split
    assert result.text.endswith("12, " * 60 + "12")


@pytest.mark.parametrize(
    ("language", "text", "translated"),
    [
        ("de", "1. Hund\n2. Gitarre", "1. Hund Hund\n2. Gitarre Gitarre"),
        ("de", "1. Mai", "1. Mai 1. Mai"),
        ("ru", "- A dog\n- Где", "- A dog\n- Где Где"),
    ],
)
async def test_the_language_is_the_model_s(
    tokenizer: Tokenizer, language: str, text: str, translated: str
) -> None:
    async with translating(tokenizer, twice, language=language) as setup:
        [result] = await setup.translator.translate([text])
    assert result.text == translated

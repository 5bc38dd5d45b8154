"""Links between a text and its translation: of words, of sentences, and of what is copied."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from model.bundle.carriers import DEFAULT_CARRIERS
from model.bundle.spans import Span
from model.bundle.tokenizer import Tokenizer
from service.domain.plan import RunnerLimits
from service.engine.engine import Engine
from service.text.options import TextOptions
from service.text.text_translator import text_translator
from service.translation.links import Link, word_links
from service.translation.options import TranslateOptions
from service.translation.pivot import PivotTranslator
from service.translation.translator import Translator
from tests.fake_runner import FakeRunner, echo
from tests.fake_scorer import FakeScorer

LINKED = TranslateOptions(links=True)
TEXT = "  # A dog runs.  It barks.\n\n- https://example.com\n- Two men.\n"


@asynccontextmanager
async def translating(
    tokenizer: Tokenizer, *, can_score: bool = True
) -> AsyncIterator[tuple[Translator, FakeScorer]]:
    """A model that repeats what it reads, and looks at position t for token t."""
    limits, scorer = RunnerLimits(4, 64, 64, 2, tokenizer.vocab_size), FakeScorer()
    engine = Engine.of_runner(FakeRunner(limits, echo), scorer=scorer if can_score else None)
    await engine.start()
    try:
        yield Translator(engine, tokenizer), scorer
    finally:
        await engine.stop()


def parts(text: str, translation: str, links: Sequence[Link]) -> list[tuple[str, str]]:
    return [(text[slice(*link.source)], translation[slice(*link.target)]) for link in links]


async def test_words_are_linked_and_what_is_copied_links_to_itself(tokenizer: Tokenizer) -> None:
    async with translating(tokenizer) as (translator, _):
        [result] = await translator.translate([TEXT], LINKED)
    assert result.text == TEXT
    found = parts(TEXT, result.text, result.links)
    assert all(source == target for source, target in found)
    assert all(link.source == link.target for link in result.links)
    assert [source for source, _ in found] == [
        *("  # ", "A", "dog", "runs", ".", "  ", "It", "barks", "."),
        *("\n\n- https://example.com", "\n- ", "Two", "men", ".", "\n"),
    ]


async def test_a_model_without_a_scoring_graph_links_sentences(tokenizer: Tokenizer) -> None:
    async with translating(tokenizer, can_score=False) as (translator, _):
        [result] = await translator.translate([TEXT], LINKED)
    found = [source for source, _ in parts(TEXT, result.text, result.links)]
    copied = ("\n\n- https://example.com", "\n- ")
    assert found == ["  # ", "A dog runs.", "  ", "It barks.", *copied, "Two men.", "\n"]


async def test_with_a_pivot_sentences_are_linked(tokenizer: Tokenizer) -> None:
    async with translating(tokenizer) as (first, _), translating(tokenizer) as (second, scorer):
        [result] = await PivotTranslator(first, second, "en").translate([TEXT], LINKED)
    found = [source for source, _ in parts(TEXT, result.text, result.links)]
    copied = ("\n\n- https://example.com", "\n- ")
    assert found == ["  # ", "A dog runs.", "  ", "It barks.", *copied, "Two men.", "\n"]
    assert not scorer.items


async def test_nothing_is_scored_unless_links_are_wanted(tokenizer: Tokenizer) -> None:
    async with translating(tokenizer) as (translator, scorer):
        [result] = await translator.translate([TEXT])
    assert not result.links
    assert not scorer.num_prepared


def test_a_request_that_asks_for_nothing_else_has_no_stage(tokenizer: Tokenizer) -> None:
    class Sentences:
        translate = stream = None
        carriers = DEFAULT_CARRIERS

    sentences: Any = Sentences()
    assert text_translator(sentences, TextOptions()) is sentences


@settings(max_examples=60)
@given(data=st.data())
def test_links_of_words_are_words_of_both_texts_in_order(
    tokenizer: Tokenizer, data: st.DataObject
) -> None:
    texts = st.text("ab é.,😀界 \n", max_size=30)
    source, target = data.draw(texts), data.draw(texts)
    spans = tokenizer.encoded_spans(source), tokenizer.encoded_spans(target)
    linked = data.draw(
        st.lists(st.integers(0, len(spans[0])), min_size=len(spans[1]), max_size=len(spans[1]))
    )
    links = word_links(source, target, spans, linked)
    assert len(set(links)) == len(links)
    assert [link.target for link in links] == sorted(link.target for link in links)
    for link in links:
        for text, (start, end) in ((source, link.source), (target, link.target)):
            assert 0 <= start < end <= len(text)
            assert text[start:end].strip() == text[start:end]


def test_tokens_of_a_word_are_one_link_and_the_end_is_none() -> None:
    source, target = "big house", "grosses Haus!"
    spans = (
        [Span(0, 3), Span(4, 9)],
        [Span(0, 4), Span(4, 7), Span(8, 12), Span(12, 13)],
    )
    links = word_links(source, target, spans, [0, 0, 1, 2])
    assert parts(source, target, links) == [("big", "grosses"), ("house", "Haus")]

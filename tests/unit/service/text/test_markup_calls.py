"""Calls with markup: limits, errors, memory, and how documents share a call."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import pytest

from service.errors import InvalidArgumentError, ResourceExhaustedError
from service.text.markup.markup_translator import MarkupTranslator, plain_texts
from service.text.markup.tree import MAX_DEPTH, Node
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import TextResult
from tests.fake_linked import FakeLinkedTranslator
from tests.unit.service.text.markup_documents import HTML, translated


async def test_limits_and_bad_characters_are_errors() -> None:
    below = FakeLinkedTranslator()
    translator = MarkupTranslator(below, HTML, TranslatorLimits(max_characters=1_000_000))
    deep = "<b>" * (MAX_DEPTH + 1) + "dog" + "</b>" * (MAX_DEPTH + 1)
    results = await translator.translate([deep, "<p \0>dog", "<b>x" * 70_000, "<b>dog</b>"])
    errors = [str(result.error) for result in results[:3]]
    assert "contents[0]: inline tags nested deeper than 100" in errors[0]
    assert "contents[1]: the character NUL at position 3" in errors[1]
    assert "contents[2]: more than 50,000 tags" in errors[2]
    assert results[3].text == "<b>dog's</b>"
    with pytest.raises(InvalidArgumentError, match=r"contents\[0\]: 1,000,001 characters"):
        await translator.translate(["<p>" + "x" * 999_998])


def test_streams_of_markup_are_refused() -> None:
    below = FakeLinkedTranslator()
    with pytest.raises(InvalidArgumentError, match="mime_type: a stream"):
        MarkupTranslator(below, HTML, below.limits).stream("<p>dog</p>")


async def test_no_document_is_left_to_the_garbage_collector(few_objects: None) -> None:
    """A full collection of large trees takes a tenth of a second."""
    document = "<p>A <b>dog <i>runs</i></b>.</p>" * 20
    gc.disable()
    try:
        await translated(document)
        await plain_texts([document], HTML)
        assert num_nodes() == 0
    finally:
        gc.enable()


def num_nodes() -> int:
    return sum(type(each) is Node for each in gc.get_objects())


# Two of them are translated together.
LONG = f"<pre>{'x' * 7000}</pre><p>A cat.</p>"


async def test_documents_are_parsed_as_those_before_are_translated(few_objects: None) -> None:
    release = asyncio.Event()

    class Held(FakeLinkedTranslator):
        async def translate(self, texts: Sequence[str], *given: Any, **shared: Any) -> Any:
            results = await super().translate(texts, *given, **shared)
            await release.wait()
            return results

    below, documents = Held(), [LONG.replace("cat", "dog")] * 20
    translating = asyncio.create_task(
        MarkupTranslator(below, HTML, below.limits).translate(documents)
    )
    while len(below.texts) < 4:
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(below.texts) == 4
    assert num_nodes() == 0  # long ones are parsed again
    release.set()
    assert len(await translating) == 20


async def test_a_call_without_room_is_refused_before_its_documents_are_parsed(
    few_objects: None,
) -> None:
    class Full(FakeLinkedTranslator):
        async def enter(self, *given: Any, **shared: Any) -> None:
            raise ResourceExhaustedError("full")

    below, before = Full(), num_nodes()
    with pytest.raises(ResourceExhaustedError):
        await MarkupTranslator(below, HTML, below.limits).translate(["<p>A dog.</p>" * 50])
    assert (below.texts, num_nodes()) == ([], before)


async def test_errors_name_a_document_of_a_long_request() -> None:
    class Refusing(FakeLinkedTranslator):
        async def translate(self, texts: Sequence[str], *given: Any, **shared: Any) -> Any:
            if (index := next((i for i, text in enumerate(texts) if "cat" in text), None)) is None:
                return await super().translate(texts, *given, **shared)
            if raises:
                raise InvalidArgumentError(f"contents[{index}]", "has a cat")
            error = InvalidArgumentError(f"contents[{index}]", "has a cat")
            results = await super().translate(texts, *given, **shared)
            results[index] = TextResult("", None, error=error)
            return results

    documents = [LONG.replace("cat", "dog")] * 6
    documents[4] = LONG
    below = Refusing()
    for split_sentences in (True, False):
        options = TranslateOptions(split_sentences=split_sentences)
        raises = False
        results = await MarkupTranslator(below, HTML, below.limits).translate(documents, options)
        [(index, error)] = [(i, r.error) for i, r in enumerate(results) if r.error]
        assert isinstance(error, InvalidArgumentError)
        assert (index, error.field) == (4, "contents[4]")
        raises = True
        with pytest.raises(InvalidArgumentError) as refused:
            await MarkupTranslator(below, HTML, below.limits).translate(documents, options)
        assert refused.value.field == "contents[4]"

"""The translator: texts to texts or errors, over an engine whose model repeats what it reads."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.bundle.tokenizer import Tokenizer
from service.domain.plan import RunnerLimits
from service.domain.requests import FinishReason, SearchOptions
from service.engine.engine import Engine, EngineConfig
from service.errors import (
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import TextResult
from service.translation.translator import StreamDelta, Translator
from tests.fake_runner import FakeRunner, echo
from tests.unit.service.translation.translating import streamed, translating

WHOLE = TranslateOptions(split_sentences=False)


@pytest.mark.parametrize("text", ["", " ", "\n", " \t\r\n\u3000 ", "---", "😀 !", "\u200b", "..."])
async def test_what_says_nothing_comes_back_without_the_model(
    tokenizer: Tokenizer, text: str
) -> None:
    async with translating(tokenizer) as setup:
        [result] = await setup.translator.translate([text])
        deltas, summary = await streamed(setup.translator, text)
        assert setup.runner.plans == []
    assert result.text == summary.text == "".join(deltas) == text
    assert result.finish_reason is FinishReason.EOS
    assert result.num_source_tokens == 0


@settings(max_examples=60)
@given(
    texts=st.lists(
        st.text(max_size=40) | st.text("ab .!?\n\t😀é\u0301\r-", max_size=40), max_size=6
    )
)
def test_streamed_and_whole_are_the_same_text(tokenizer: Tokenizer, texts: list[str]) -> None:
    async def check() -> None:
        async with translating(tokenizer, max_positions=16) as setup:
            for options in (TranslateOptions(), WHOLE):
                results = await setup.translator.translate(texts, options)
                for text, result in zip(texts, results, strict=True):
                    if "\0" in text:
                        assert isinstance(result.error, InvalidArgumentError)
                        continue
                    deltas, summary = await streamed(setup.translator, text, options)
                    assert "".join(deltas) == summary.text == result.text
                    assert all(deltas)
                    assert summary.num_source_tokens == result.num_source_tokens
                    assert summary.num_target_tokens == result.num_target_tokens
                    assert summary.was_split == result.was_split

    asyncio.run(check())


async def test_deltas_come_before_the_text_is_finished(tokenizer: Tokenizer) -> None:
    async with translating(tokenizer) as setup:
        setup.runner.hold()
        stream = setup.translator.stream("A dog runs. It barks.")
        first = asyncio.ensure_future(anext(stream))
        setup.runner.allow(3)  # of the ten steps and more that it takes
        delta = await first
        assert isinstance(delta, StreamDelta)
        assert delta.text.startswith("A")
        setup.runner.release()
        rest = [event async for event in stream]
        assert isinstance(rest[-1], TextResult)


@pytest.mark.parametrize("options", [TranslateOptions(), WHOLE], ids=["split", "whole"])
async def test_what_is_too_long_is_cut_and_says_so(
    tokenizer: Tokenizer, options: TranslateOptions
) -> None:
    texts = ["x" * 1000, "A dog runs, " * 40 + "and runs.", "A dog."]
    async with translating(tokenizer, max_positions=32) as setup:
        results = await setup.translator.translate(texts, options)
    assert [result.text for result in results] == texts
    assert [result.was_split for result in results] == [True, True, False]


async def test_the_largest_request_works_on_an_idle_engine(tokenizer: Tokenizer) -> None:
    texts = [f"A dog runs. It barks {n} times! Nobody stops it?" for n in range(1024)]
    async with translating(tokenizer, max_rows=64) as setup:
        # Held at its first step, so that it does not depend on the machine how far the request
        # gets ahead of the steps: as far as it may, and then every row is in use.
        setup.runner.hold()
        translating_all = asyncio.create_task(setup.translator.translate(texts))
        async with asyncio.timeout(60.0):
            while setup.engine._admission.num_taken < 128:
                await asyncio.sleep(0)
        setup.runner.release()
        results = await translating_all
        assert [result.text for result in results] == texts
        # Not in the second step: how many are encoded in one is limited.
        assert max(plan.num_rows for plan in setup.runner.plans) == 64
        assert await setup.engine.drain(10.0)


@dataclass
class Blank:
    """A model that writes one token in place of a sentence, but repeats those that it knows."""

    tokenizer: Tokenizer
    known: str = ""
    written: str = "."

    def __call__(self, source_ids: tuple[int, ...]) -> Sequence[int]:
        if self.tokenizer.decode(source_ids) in self.known.split("|"):
            return source_ids
        return [*self.tokenizer.encode(self.written), self.tokenizer.eos_id]


@pytest.mark.parametrize("written", ["", "."])
async def test_what_comes_back_without_a_word_is_translated_with_a_capital(
    tokenizer: Tokenizer, written: str
) -> None:
    script = Blank(tokenizer, "On|A dog.|It.", written)
    texts = ["on", "  on\n\n- on\n", "A dog. it. the"]
    async with translating(tokenizer, script) as setup:
        results = await setup.translator.translate(texts, TranslateOptions(links=True))
        deltas = [(await streamed(setup.translator, text))[0] for text in texts]
    expected = ["On", "  On\n\n- On\n", "A dog. It. the"]
    assert [result.text for result in results] == expected
    assert ["".join(each) for each in deltas] == expected
    for text, result in zip(texts, results, strict=True):
        assert result.finish_reason is FinishReason.EOS
        for link in result.links:
            assert len(text[slice(*link.source)]) == len(result.text[slice(*link.target)])


async def test_each_text_that_came_back_without_a_word_is_translated_again(
    tokenizer: Tokenizer,
) -> None:
    async with translating(tokenizer, Blank(tokenizer, "On|Of|At")) as setup:
        results = await setup.translator.translate(["on", "of", "at"])
    assert [result.text for result in results] == ["On", "Of", "At"]


async def test_hypotheses_without_a_word_are_the_models_own(tokenizer: Tokenizer) -> None:
    options = TranslateOptions(num_hypotheses=1)
    async with translating(tokenizer, Blank(tokenizer, "On")) as setup:
        results = await setup.translator.translate(["on", "of"], options)
    assert [result.text for result in results] == ["On", "."]
    for result, source in zip(results, ("on", "of"), strict=True):
        [sentence] = result.sentences
        assert (sentence.source_text, sentence.hypotheses[0].text) == (source, result.text)


async def test_a_given_beginning_is_not_translated_again(tokenizer: Tokenizer) -> None:
    options = TranslateOptions(target_prefix=".")
    async with translating(tokenizer, Blank(tokenizer, "On", "")) as setup:
        [result] = await setup.translator.translate(["on"], options)
        deltas, _ = await streamed(setup.translator, "on", options)
    assert result.text == "".join(deltas)
    assert "n" not in result.text


async def test_times_tell_waiting_from_working(tokenizer: Tokenizer) -> None:
    ticks = itertools.count()
    runner = FakeRunner(RunnerLimits(1, 64, 64, 2, tokenizer.vocab_size), echo)
    engine = Engine.of_runner(runner, clock=lambda: float(next(ticks)))
    await engine.start()
    translator = Translator(engine, tokenizer)
    first, second = await translator.translate(["A dog runs. It barks.", "A man walks."])
    blank, _ = await translator.translate([" ", "A man."])
    await engine.stop()
    assert 0 < first.queue_seconds < second.queue_seconds
    assert second.queue_seconds >= first.queue_seconds + first.compute_seconds
    assert (blank.queue_seconds, blank.compute_seconds) == (0.0, 0.0)


# --- what is refused, fails or is cancelled -------------------------------------------------------


@pytest.mark.parametrize("bad", ["a\0b", "\ud800"])
async def test_a_bad_text_fails_alone(tokenizer: Tokenizer, bad: str) -> None:
    async with translating(tokenizer) as setup:
        results = await setup.translator.translate(["A dog.", bad, "A man."])
        assert [result.text for result in results] == ["A dog.", "", "A man."]
        error = results[1].error
        assert isinstance(error, InvalidArgumentError)
        assert error.field == "contents[1]"
        assert results[1].finish_reason is None
        with pytest.raises(InvalidArgumentError, match="content:"):
            await streamed(setup.translator, bad)


async def test_limits_are_named(tokenizer: Tokenizer) -> None:
    limits = TranslatorLimits(max_texts=3, max_characters=10)
    async with translating(tokenizer, limits=limits) as setup:
        translator = setup.translator
        assert len(await translator.translate(["x" * 10] * 3)) == 3
        with pytest.raises(InvalidArgumentError, match=r"^contents: 4 texts, the limit is 3$"):
            await translator.translate(["x"] * 4)
        with pytest.raises(InvalidArgumentError, match=r"^contents\[1\]: 11 .* limit is 10$"):
            await translator.translate(["x", "x" * 11])
        with pytest.raises(InvalidArgumentError, match=r"^content: 11 characters"):
            await streamed(translator, "x" * 11)


@pytest.mark.parametrize("max_new_tokens", [0, -1, 65])
async def test_options_out_of_range_are_named(tokenizer: Tokenizer, max_new_tokens: int) -> None:
    options = TranslateOptions(max_new_tokens=max_new_tokens)
    async with translating(tokenizer) as setup:
        with pytest.raises(InvalidArgumentError, match=r"^options\.max_new_tokens: .*1 and 64"):
            await setup.translator.translate(["x"], options)
        with pytest.raises(InvalidArgumentError, match=r"^options\.max_new_tokens"):
            await streamed(setup.translator, "x", options)


async def test_length_is_told(tokenizer: Tokenizer) -> None:
    enough_for_short = TranslateOptions(max_new_tokens=len(tokenizer.encode("It.")) + 1)
    async with translating(tokenizer) as setup:
        results = await setup.translator.translate(["A dog runs. It.", "It."], enough_for_short)
    assert [result.finish_reason for result in results] == [FinishReason.LENGTH, FinishReason.EOS]


async def test_a_failing_step_fails_its_texts(tokenizer: Tokenizer) -> None:
    async with translating(tokenizer, max_rows=2) as setup:
        # A beam of two takes all rows, and the step that fails it waits until the texts do.
        setup.runner.hold()
        setup.runner.fail_next(RuntimeError("broken"))
        setup.runner.fail_next(RuntimeError("broken"))
        beam = TranslateOptions(search=SearchOptions(beam_size=2))
        before = asyncio.create_task(setup.translator.translate(["A cat."], beam))
        await asyncio.to_thread(setup.runner.wait_until_blocked)
        texts = ["A dog.", "---", "A man.", "It barks."]
        call = asyncio.create_task(setup.translator.translate(texts))
        async with asyncio.timeout(60):
            while len(setup.engine._generations) < 4:
                await asyncio.sleep(0)
        setup.runner.release()
        results = await call
        assert isinstance((await before)[0].error, InternalError)
        assert [type(result.error) for result in results] == [
            InternalError,
            type(None),
            InternalError,
            type(None),
        ]
        assert results[0].finish_reason is FinishReason.ERROR
        assert [result.text for result in results] == ["", "---", "", "It barks."]
        setup.runner.fail_next(RuntimeError("broken"))
        with pytest.raises(InternalError):
            await streamed(setup.translator, "A dog.")


async def test_a_full_engine_refuses_but_returns_blank_texts(tokenizer: Tokenizer) -> None:
    async with translating(tokenizer, config=EngineConfig(max_waiting=0)) as setup:
        setup.runner.hold()
        calls = [asyncio.create_task(setup.translator.translate(["A dog."])) for _ in range(4)]
        await asyncio.to_thread(setup.runner.wait_until_blocked)
        with pytest.raises(ResourceExhaustedError):
            await setup.translator.translate(["A man."])
        with pytest.raises(ResourceExhaustedError):
            await streamed(setup.translator, "A man.")
        assert (await setup.translator.translate([" \n"]))[0].text == " \n"
        setup.runner.release()
        assert [results[0].text for results in await asyncio.gather(*calls)] == ["A dog."] * 4


async def test_stopping_the_engine_ends_the_call(tokenizer: Tokenizer) -> None:
    async with translating(tokenizer) as setup:
        setup.runner.hold()
        call = asyncio.create_task(setup.translator.translate(["A dog runs. It barks."] * 500))
        await asyncio.to_thread(setup.runner.wait_until_blocked)
        stopping = asyncio.create_task(setup.engine.stop())
        await asyncio.sleep(0)
        setup.runner.release()
        await stopping
        with pytest.raises(UnavailableError):
            await call

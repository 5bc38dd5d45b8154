"""Texts and calls that a translator refuses, or that fail or are cancelled."""

from __future__ import annotations

import asyncio

import pytest

from model.bundle.tokenizer import Tokenizer
from service.domain.requests import FinishReason, SearchOptions
from service.engine.engine import EngineConfig
from service.errors import (
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from service.translation.options import TranslateOptions, TranslatorLimits
from tests.unit.service.translation.translating import streamed, translating


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

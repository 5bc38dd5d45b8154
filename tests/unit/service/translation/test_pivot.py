"""Two translators in sequence, over engines whose models repeat what they read, and their calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.bundle.tokenizer import Tokenizer
from service.domain.requests import (
    FinishReason,
    Priority,
    SearchOptions,
)
from service.domain.sampling import Sampling
from service.engine.engine import EngineConfig
from service.errors import (
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from service.translation.options import TranslateOptions
from service.translation.results import TextResult, untranslated
from service.translation.translator import StreamDelta
from tests.fake_runner import FakeRunner, Script
from tests.unit.service.translation.pivots import TEXT, Leg, idle, pivoting, streamed

WHOLE = TranslateOptions(split_sentences=False)


def shouting(tokenizer: Tokenizer) -> Script:
    """A model that writes a text as it is and adds a word."""

    def script(source_ids: tuple[int, ...]) -> list[int]:
        return tokenizer.encode(tokenizer.decode(source_ids[:-1]) + " Hund")

    return script


@settings(max_examples=40)
@given(
    texts=st.lists(
        st.text(max_size=40) | st.text("ab .!?\n\t😀é\u0301\r-", max_size=40), max_size=5
    )
)
def test_through_models_that_repeat_texts_everything_is_as_through_one(
    tokenizer: Tokenizer, texts: list[str]
) -> None:
    """Line structure, white space, copied parts, bad texts, counts; in calls and in streams."""

    async def check() -> None:
        async with pivoting(tokenizer) as legs:
            for options in (TranslateOptions(), WHOLE):
                direct = await legs.first.translator.translate(texts, options)
                results = await legs.translator.translate(texts, options)
                for text, expected, result in zip(texts, direct, results, strict=True):
                    assert result.text == expected.text
                    assert result.num_source_tokens == expected.num_source_tokens
                    assert result.finish_reason == expected.finish_reason
                    assert str(result.error) == str(expected.error)
                    if expected.error is not None:
                        with pytest.raises(InvalidArgumentError):
                            await streamed(legs.translator, text, options)
                        continue
                    deltas, summary = await streamed(legs.translator, text, options)
                    assert deltas == summary.text == result.text
                    assert summary.num_source_tokens == result.num_source_tokens
                    assert summary.num_target_tokens == result.num_target_tokens

    asyncio.run(check())


def speechless(tokenizer: Tokenizer, known: str) -> Script:
    """A model that writes nothing, but repeats one text."""

    def script(source_ids: tuple[int, ...]) -> list[int]:
        is_known = tokenizer.decode(source_ids) == known
        return list(source_ids) if is_known else [tokenizer.eos_id]

    return script


@pytest.mark.parametrize(
    ("known", "known_second", "written"),
    [("On", "On", "On"), ("x", "On", "on"), ("on", "On", "On"), ("On", "x", "on")],
)
async def test_a_model_that_writes_no_word_reads_the_sentence_with_a_capital(
    tokenizer: Tokenizer, known: str, known_second: str, written: str
) -> None:
    first = {"script": speechless(tokenizer, known)}
    async with pivoting(tokenizer, first, script=speechless(tokenizer, known_second)) as legs:
        for text in ("on", "- on\n"):
            [result] = await legs.translator.translate([text], TranslateOptions(links=True))
            deltas, summary = await streamed(legs.translator, text)
            assert deltas == summary.text == result.text == text.replace("on", written)
            assert len(result.links) == (2 if "-" in text else 1) + text.endswith("\n")
            # A sentence that stands there as it is has a warning.
            kept = [untranslated("on")] if written == "on" else []
            assert list(result.warnings) == list(summary.warnings) == kept


async def test_the_second_model_reads_what_the_first_one_wrote(tokenizer: Tokenizer) -> None:
    shout = shouting(tokenizer)
    async with pivoting(tokenizer, {"script": shout}, script=shout) as legs:
        [result] = await legs.translator.translate([TEXT])
        _, summary = await streamed(legs.translator, TEXT)
    written = "A dog runs. Hund Hund  It barks. Hund Hund\n\n- Two men. Hund Hund\n"
    assert result.text == summary.text == written
    sources = [tokenizer.encode(text) for text in ("A dog runs.", "It barks.", "Two men.")]
    targets = [
        tokenizer.encode(text + " Hund Hund") for text in ("A dog runs.", "It barks.", "Two men.")
    ]
    for each in (result, summary):
        assert each.num_source_tokens == sum(map(len, sources))
        assert each.num_target_tokens == sum(map(len, targets))
        assert each.compute_seconds > 0 <= each.queue_seconds


async def test_a_sentence_too_long_for_the_second_model_is_split(tokenizer: Tokenizer) -> None:
    text = "A dog runs, it barks, two men run, and it barks, and two dogs run."
    async with pivoting(tokenizer, max_positions=16) as legs:
        options = TranslateOptions(num_hypotheses=1)
        [result] = await legs.translator.translate([text], options)
        deltas, summary = await streamed(legs.translator, text)
    assert result.text == deltas == text
    assert result.was_split
    assert summary.was_split
    sources = [sentence.source_text for sentence in result.sentences]
    assert sources == [text, *[""] * (len(sources) - 1)]
    assert len(sources) > 1


async def test_the_answer_s_sentences_are_the_original_ones(tokenizer: Tokenizer) -> None:
    async with pivoting(tokenizer, {"script": shouting(tokenizer)}) as legs:
        search = SearchOptions(beam_size=2)
        options = TranslateOptions(search=search, num_hypotheses=2, return_tokens=True)
        [result] = await legs.translator.translate([TEXT], options)
    assert [s.source_text for s in result.sentences] == ["A dog runs.", "It barks.", "Two men."]
    for sentence in result.sentences:
        assert len(sentence.hypotheses) == 2
        assert sentence.hypotheses[0].text == sentence.source_text + " Hund"
        assert sentence.hypotheses[0].tokens


async def test_how_to_search_is_for_both_models_and_what_to_write_for_the_second(
    tokenizer: Tokenizer,
) -> None:
    search = SearchOptions(beam_size=2, length_penalty=0.5, repetition_penalty=1.5)
    full = TranslateOptions(
        max_new_tokens=40,
        search=search,
        suppressed_tokens=(tokenizer.id_to_piece(tokenizer.encode("Hund")[0]),),
        target_prefix="Zwei",
        priority=Priority.LOW,
        num_hypotheses=2,
        return_tokens=True,
    )
    into = full.into_pivot("en")
    assert into == TranslateOptions(search=search, priority=Priority.LOW)
    sampled = TranslateOptions(search=SearchOptions(min_new_tokens=3, sampling=Sampling()))
    assert sampled.into_pivot("en") == TranslateOptions()
    async with pivoting(tokenizer) as legs:
        prefixed = TranslateOptions(target_prefix="Zwei Männer", max_new_tokens=9)
        [result] = await legs.translator.translate(["... \n A dog runs. It barks."], prefixed)
        deltas, _ = await streamed(legs.translator, "... \n A dog runs. It barks.", prefixed)
    assert result.text == deltas
    assert result.text.startswith("... \n Zwei Männer")
    assert result.finish_reason is FinishReason.LENGTH
    assert result.text.count("Zwei") == 1


async def test_alignments_are_refused(tokenizer: Tokenizer) -> None:
    async with pivoting(tokenizer) as legs:
        with pytest.raises(InvalidArgumentError) as caught:
            await legs.translator.translate([TEXT], TranslateOptions(return_alignments="hard"))
        assert caught.value.field == "options.return_alignments"
        assert "'en'" in str(caught.value)
        assert legs.first.runner.plans == []


@pytest.mark.parametrize("failing", ["first", "second"])
async def test_a_sentence_that_a_model_fails_at_fails_its_text_alone(
    tokenizer: Tokenizer, failing: str
) -> None:
    # One row: the first sentence fails alone.
    async with pivoting(tokenizer, {"max_rows": 1}, max_rows=1) as legs:
        broken: Leg = getattr(legs, failing)
        broken.runner.fail_next(ValueError("the secret of this failure"))
        bad, good = await legs.translator.translate(["A dog runs. It barks.", "Two men."])
        assert isinstance(bad.error, InternalError)
        assert (bad.text, bad.finish_reason) == ("", FinishReason.ERROR)
        assert (good.text, good.error) == ("Two men.", None)
        broken.runner.fail_next(ValueError("the secret of this failure"))
        with pytest.raises(InternalError):
            await streamed(legs.translator, TEXT)
        assert await idle(legs)


# --- deadlines, cancelling, admission, streams ----------------------------------------------------


@pytest.mark.parametrize("held", ["first", "second"])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_cancelled_call_leaves_both_engines(
    tokenizer: Tokenizer, held: str, streams: bool
) -> None:
    async with pivoting(tokenizer) as legs:
        runner: FakeRunner = getattr(legs, held).runner
        runner.hold()
        call = asyncio.create_task(
            streamed(legs.translator, TEXT) if streams else legs.translator.translate([TEXT])
        )
        await asyncio.to_thread(runner.wait_until_blocked)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await idle(legs)


@pytest.mark.parametrize("held", ["first", "second"])
async def test_the_deadline_holds_for_both_models(tokenizer: Tokenizer, held: str) -> None:
    now = 0.0

    def clock() -> float:
        return now

    async with pivoting(tokenizer, {"clock": clock}, clock=clock) as legs:
        runner: FakeRunner = getattr(legs, held).runner
        runner.hold()
        call = asyncio.create_task(legs.translator.translate([TEXT], deadline=100.0))
        await asyncio.to_thread(runner.wait_until_blocked)
        now = 101.0
        runner.release()
        with pytest.raises(DeadlineExceededError):
            await call
        assert await idle(legs)


async def test_a_full_second_engine_refuses_before_the_first_one_computes(
    tokenizer: Tokenizer,
) -> None:
    async with pivoting(tokenizer, max_rows=1, config=EngineConfig(max_waiting=1)) as legs:
        legs.second.runner.hold()
        busy = [
            asyncio.create_task(legs.second.translator.translate(["A dog."], client=client))
            for client in ("a", "b")
        ]
        while legs.second.engine._admission.num_taken < len(busy):
            await asyncio.sleep(0)
        with pytest.raises(ResourceExhaustedError):
            await legs.translator.translate([TEXT], client="c")
        with pytest.raises(ResourceExhaustedError):
            await streamed(legs.translator, TEXT)
        assert legs.first.runner.plans == []
        legs.second.runner.release()
        await asyncio.gather(*busy)
        assert await idle(legs)


async def test_client_priority_and_id_are_the_same_for_both_models(tokenizer: Tokenizer) -> None:
    async with pivoting(tokenizer) as legs:
        options = TranslateOptions(priority=Priority.HIGH)
        await legs.translator.translate(["A dog."], options, client="id:me", request_id="42")
    for each in (legs.first, legs.second):
        [request] = each.seen.requests
        assert (request.client, request.request_id) == ("id:me", "42")
        assert request.priority is Priority.HIGH


async def test_a_stream_begins_before_the_first_model_has_read_everything(
    tokenizer: Tokenizer,
) -> None:
    async with pivoting(tokenizer, {"max_rows": 1}) as legs:
        legs.first.runner.hold()
        stream = legs.translator.stream("A dog runs. It barks. Two men.")
        first = asyncio.ensure_future(anext(stream))
        legs.first.runner.allow(len(tokenizer.encode("A dog runs.")) + 2)
        delta = await first
        assert isinstance(delta, StreamDelta)
        assert delta.text.startswith("A")
        legs.first.runner.release()
        rest = [event async for event in stream]
        assert isinstance(rest[-1], TextResult)
        assert rest[-1].text == "A dog runs. It barks. Two men."


async def test_closing_a_stream_leaves_both_engines(tokenizer: Tokenizer) -> None:
    async with pivoting(tokenizer) as legs:
        stream = legs.translator.stream(TEXT * 20)
        assert isinstance(stream, AsyncGenerator)
        async with contextlib.aclosing(stream):
            await anext(stream)
        assert await idle(legs)


async def test_large_calls_pass_through_small_engines(tokenizer: Tokenizer) -> None:
    config = EngineConfig(max_waiting=2)
    async with pivoting(
        tokenizer, {"max_rows": 2, "config": config}, max_rows=1, config=config
    ) as legs:
        texts = [TEXT, "Two men.", TEXT] * 10
        results = await legs.translator.translate(texts)
        assert [result.text for result in results] == texts
        deltas, _ = await streamed(legs.translator, TEXT * 10)
        assert deltas == TEXT * 10
        assert await idle(legs)

"""Calls with a cache: hits, followers, tenants, streams, pivots and the shared store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from model.bundle.tokenizer import Tokenizer
from service.domain.requests import Priority, SearchOptions
from service.domain.sampling import Sampling
from service.engine.engine import EngineConfig
from service.errors import DeadlineExceededError, ResourceExhaustedError
from service.translation.options import TranslateOptions
from service.translation.pivot import PivotTranslator
from service.translation.results import TextResult
from tests.clock import Clock
from tests.unit.service.cache.cached_translators import CachedSetup, DictStore, caching
from tests.unit.service.engine.served_engine import settled
from tests.unit.service.translation.translating import streamed

PAGE = ["A dog runs. A cat sleeps.", "A bird flies."]


async def translated(made: CachedSetup, *texts: str, **shared: Any) -> list[TextResult]:
    options = shared.pop("options", None)
    return await made.translator.translate(texts, options, **{"tenant": "", **shared})


async def blocked(made: CachedSetup, *texts: str, **shared: Any) -> asyncio.Task[list[TextResult]]:
    """A call that the model works on until it is released."""
    made.runner.hold()
    call = asyncio.create_task(translated(made, *texts, **shared))
    await asyncio.to_thread(made.runner.wait_until_blocked)
    return call


def values(results: list[TextResult]) -> list[object]:
    """All that must not depend on the cache."""
    return [
        (each.text, each.finish_reason, each.num_source_tokens, each.num_target_tokens)
        for each in results
    ]


async def test_a_page_with_one_changed_sentence_costs_one_sentence(tokenizer: Tokenizer) -> None:
    async with caching(tokenizer) as made:
        first = await translated(made, *PAGE)
        assert [each.num_cached_characters for each in first] == [0, 0]
        again = await translated(made, *PAGE)
        assert values(again) == values(first)
        assert [each.num_cached_characters for each in again] == [24, 13]
        assert made.num_encoded == 3
        changed = await translated(made, "A dog runs. A cow sleeps.", PAGE[1])
        assert [each.num_cached_characters for each in changed] == [11, 13]
        assert made.num_encoded == 4
        assert made.looked_up() == {"hit": 5, "miss": 4}


async def test_a_finished_stream_fills_the_cache(tokenizer: Tokenizer) -> None:
    async with caching(tokenizer) as made:

        async def stream() -> tuple[list[str], TextResult]:
            deltas: list[str] = []
            async for event in made.translator.stream(PAGE[0], tenant=""):
                if isinstance(event, TextResult):
                    return deltas, event
                deltas.append(event.text)
            raise AssertionError

        deltas, result = await stream()
        again, hit = await stream()
        assert "".join(again) == "".join(deltas) == result.text == hit.text
        assert hit.num_cached_characters == 24
        assert made.num_encoded == 2


async def test_without_a_tenant_nothing_is_cached(tokenizer: Tokenizer) -> None:
    async with caching(tokenizer) as made:
        for _ in range(2):
            await made.translator.translate(PAGE)
            await streamed(made.translator, PAGE[0])
        assert made.looked_up() == {}
        assert made.num_encoded == 10


async def test_tenants_share_nothing(tokenizer: Tokenizer) -> None:
    async with caching(tokenizer) as made:
        for tenant in ("tenant:a", "tenant:b", "tenant:a"):
            await translated(made, "A dog.", tenant=tenant)
        assert made.looked_up() == {"hit": 1, "miss": 2}


async def test_random_sampling_is_cached_only_with_a_seed(tokenizer: Tokenizer) -> None:
    for seed, num_encoded in ((None, 2), (5, 1)):
        async with caching(tokenizer) as made:
            options = TranslateOptions(search=SearchOptions(sampling=Sampling(seed=seed)))
            for _ in range(2):
                await translated(made, "A dog.", options=options)
            assert made.num_encoded == num_encoded


async def test_a_failed_sentence_is_computed_again(tokenizer: Tokenizer) -> None:
    async with caching(tokenizer) as made:
        made.runner.fail_next(RuntimeError("out of memory"))
        [failed] = await translated(made, "A dog.")
        assert failed.error is not None
        assert failed.num_cached_characters == 0
        [result] = await translated(made, "A dog.")
        assert result.error is None
        assert made.looked_up() == {"miss": 2}


async def test_an_expired_sentence_is_computed_again(tokenizer: Tokenizer) -> None:
    clock = Clock()
    async with caching(tokenizer, clock=clock) as made:
        call = await blocked(made, "A dog.", deadline=clock.now + 5)
        clock.now += 6
        made.runner.release()
        with pytest.raises(DeadlineExceededError):
            await call
        [result] = await translated(made, "A dog.")
        assert result.num_cached_characters == 0


async def test_hits_need_no_room(tokenizer: Tokenizer) -> None:
    async with caching(tokenizer, max_rows=1, config=EngineConfig(max_waiting=1)) as made:
        await translated(made, "A dog.")
        busy = [await blocked(made, "A cat.", client="a")]
        busy.append(asyncio.create_task(translated(made, "A cow.", client="b")))
        await settled()
        with pytest.raises(ResourceExhaustedError):
            await translated(made, "A hen.", client="c")
        [result] = await translated(made, "A dog.", client="c")
        assert result.text == "A dog."
        made.runner.release()
        await asyncio.gather(*busy)


async def test_equal_sentences_are_computed_once(tokenizer: Tokenizer) -> None:
    async with caching(tokenizer) as made:
        leader = await blocked(made, "A dog.")
        others = [asyncio.create_task(translated(made, "A dog.")) for _ in range(20)]
        await settled()
        made.runner.release()
        [expected] = await leader
        for [result] in await asyncio.gather(*others):
            assert values([result]) == values([expected])
            assert result.num_cached_characters == 6
        assert made.num_encoded == 1
        assert made.looked_up() == {"joined": 20, "miss": 1}


async def test_many_equal_sentences_of_one_text(tokenizer: Tokenizer) -> None:
    async with caching(tokenizer) as made:
        text = "A dog runs. " * 1000
        [result] = await translated(made, text)
        assert result.text == text
        assert made.num_encoded == 1
        assert sum(made.looked_up().values()) == 1000


async def test_a_followers_call_that_ends_leaves_the_leader_alone(tokenizer: Tokenizer) -> None:
    async with caching(tokenizer) as made:
        leader = await blocked(made, "A dog.")
        follower = asyncio.create_task(translated(made, "A dog."))
        await settled()
        follower.cancel()
        with pytest.raises(asyncio.CancelledError):
            await follower
        made.runner.release()
        [result] = await leader
        assert result.text == "A dog."


async def test_a_follower_takes_over_from_a_cancelled_call(tokenizer: Tokenizer) -> None:
    async with caching(tokenizer) as made:
        leader = await blocked(made, "A dog.")
        others = [asyncio.create_task(translated(made, "A dog.")) for _ in range(3)]
        await settled()
        leader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leader
        made.runner.release()
        results = [result for [result] in await asyncio.gather(*others)]
        assert {each.text for each in results} == {"A dog."}
        assert [each.num_cached_characters for each in results] == [0, 6, 6]
        assert made.looked_up() == {"joined": 3, "miss": 1}
        await translated(made, "A dog.")
        assert made.looked_up()["hit"] == 1


async def test_a_follower_takes_over_from_a_failed_sentence(tokenizer: Tokenizer) -> None:
    async with caching(tokenizer) as made:
        made.runner.hold()
        made.runner.fail_next(RuntimeError("out of memory"))
        leader = await blocked(made, "A dog.")
        follower = asyncio.create_task(translated(made, "A dog."))
        await settled()
        made.runner.release()
        [failed], [result] = await asyncio.gather(leader, follower)
        assert failed.error is not None
        assert result.text == "A dog."


async def test_a_follower_that_took_over_can_be_cancelled(tokenizer: Tokenizer) -> None:
    async with caching(tokenizer) as made:
        leader = await blocked(made, "A dog.")
        others = [asyncio.create_task(translated(made, "A dog.")) for _ in range(2)]
        await settled()
        for call in (leader, others[0]):
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            made.runner.allow(1)
            await asyncio.to_thread(made.runner.wait_until_blocked)
            await settled()
        made.runner.release()
        [result] = await others[1]
        assert result.text == "A dog."
        assert await made.engine.drain(60)


async def test_a_follower_keeps_its_own_deadline(tokenizer: Tokenizer) -> None:
    # The clock stands still, so that the deadline does not pass on arrival.
    async with caching(tokenizer, clock=Clock()) as made:
        leader = await blocked(made, "A dog.")
        deadline = made.engine.now() + 0.02
        with pytest.raises(DeadlineExceededError, match="waited for an equal sentence"):
            await translated(made, "A dog.", deadline=deadline)
        made.runner.release()
        [result] = await leader
        assert result.text == "A dog."


async def test_a_follower_without_room_to_take_over_is_refused(tokenizer: Tokenizer) -> None:
    async with caching(tokenizer, max_rows=1, config=EngineConfig(max_waiting=1)) as made:
        leader = await blocked(made, "A dog.", client="a")
        follower = asyncio.create_task(translated(made, "A dog.", client="c"))
        busy = [asyncio.create_task(translated(made, "A cat.", client="b"))]
        await settled()
        leader.cancel()
        await settled()
        busy.append(asyncio.create_task(translated(made, "A cow.", client="d")))
        await settled()
        made.runner.release()
        done = await asyncio.gather(follower, *busy, return_exceptions=True)
        assert all(isinstance(each, list | ResourceExhaustedError) for each in done)


async def test_a_request_of_high_priority_does_not_follow_one_of_low_priority(
    tokenizer: Tokenizer,
) -> None:
    async with caching(tokenizer) as made:
        leader = await blocked(made, "A dog.", options=TranslateOptions(priority=Priority.LOW))
        high = TranslateOptions(priority=Priority.HIGH)
        other = asyncio.create_task(translated(made, "A dog.", options=high))
        await settled()
        made.runner.release()
        await asyncio.gather(leader, other)
        assert made.looked_up() == {"miss": 2}
        # The kept result serves both.
        await translated(made, "A dog.")
        assert made.looked_up() == {"hit": 1, "miss": 2}


async def test_a_shared_store_is_asked_once_for_many_texts(tokenizer: Tokenizer) -> None:
    store = DictStore()
    texts = [f"A dog has {number} legs. It runs." for number in range(50)]
    async with caching(tokenizer, shared=store) as made:
        first = await translated(made, *texts)
    assert store.asked == [51]
    assert len(store.values) == 51
    async with caching(tokenizer, shared=store) as made:
        again = await translated(made, *texts)
        assert values(again) == values(first)
        assert made.num_encoded == 0
        await translated(made, *texts)  # now in its own memory
    assert store.asked == [51, 51]


async def test_another_revision_of_a_model_has_other_results(tokenizer: Tokenizer) -> None:
    store = DictStore()
    for revision in ("1", "2"):
        async with caching(tokenizer, shared=store, revision=revision) as made:
            await translated(made, "A dog.")
            assert made.num_encoded == 1


@pytest.mark.parametrize("foreign", [b"", b"\0" * 7, b"x" * 2**20])
async def test_a_value_that_is_not_ours_is_a_miss(tokenizer: Tokenizer, foreign: bytes) -> None:
    store = DictStore()
    async with caching(tokenizer, shared=store) as made:
        await translated(made, "A dog.")
    [key] = store.values
    store.values[key] = foreign
    async with caching(tokenizer, shared=store) as made:
        [result] = await translated(made, "A dog.")
        assert result.text == "A dog."
        assert made.num_encoded == 1


@asynccontextmanager
async def pivoted(
    tokenizer: Tokenizer, store: DictStore
) -> AsyncIterator[tuple[PivotTranslator, CachedSetup, CachedSetup]]:
    async with (
        caching(tokenizer, shared=store, revision="a") as first,
        caching(tokenizer, shared=store, revision="b") as second,
    ):
        yield PivotTranslator(first.translator, second.translator, "en"), first, second


async def test_with_a_pivot_the_shared_store_is_asked_once_for_each_model(
    tokenizer: Tokenizer,
) -> None:
    store = DictStore()
    text = " ".join(f"A dog has {number} legs." for number in range(20))
    async with pivoted(tokenizer, store) as (translator, _, second):
        [expected] = await translator.translate([text], tenant="")
        assert expected.num_cached_characters == 0
        assert second.num_encoded == 20
    store.asked.clear()
    async with pivoted(tokenizer, store) as (translator, first, second):
        [result] = await translator.translate([text], tenant="")
        assert values([result]) == values([expected])
        assert first.num_encoded == second.num_encoded == 0
        assert result.num_cached_characters == len(text) - 19
        assert store.asked == [20, 20]
        async for event in translator.stream(text, tenant=""):
            if isinstance(event, TextResult):
                assert event.num_cached_characters == len(text) - 19

"""The engine with real graphs: an answer does not depend on other requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from bench.submission import submit
from model.bundle.bundle import Bundle
from model.bundle.config import ModelConfig
from model.bundle.sessions import SessionSettings
from model.evaluation.search import greedy_search
from service.batching.events import Iteration
from service.domain.requests import FinishReason, GenerationRequest, GenerationResult, SearchOptions
from service.domain.sampling import Sampling
from service.engine.engine import Engine, EngineConfig
from service.engine.interface import EngineObserver
from service.runtime.cpu.lanes import OnnxLanes
from service.runtime.cpu.runner import OnnxRunner
from tests.factories import random_model, random_sources, tiny_bundle, tiny_config

NUM_REQUESTS = 200
MAX_ROWS = 16
# Few enough that rows change between one lane and several.
TURN_ROWS_PER_LANE = 3


class RowCounter(EngineObserver):
    def __init__(self) -> None:
        self.rows: list[int] = []

    def on_iterations(self, iterations: Sequence[Iteration]) -> None:
        for iteration in iterations:
            if iteration.num_rows or iteration.num_encodes:
                self.rows.append(iteration.num_stepping)


@pytest.fixture(scope="module", params=["fp32", "int8"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    directory = tmp_path_factory.mktemp("bundle") / request.param
    return tiny_bundle(directory, precision=request.param)


def runner_of(bundle: Bundle, num_lanes: int) -> OnnxRunner | OnnxLanes:
    if num_lanes == 0:
        return OnnxRunner(bundle, max_rows=MAX_ROWS, intra_op_threads=1)
    sessions = SessionSettings(intra_op_threads=2)
    return OnnxLanes(bundle, max_rows=MAX_ROWS, num_lanes=num_lanes, sessions=sessions)


async def answers(
    bundle: Bundle, sources: list[tuple[int, ...]], *, together: bool, num_lanes: int = 0
) -> tuple[list[GenerationResult], float]:
    """The result of each source, and the mean number of rows in a step."""
    counter = RowCounter()
    runner = runner_of(bundle, num_lanes)
    config = EngineConfig(encode_token_budget=64, turn_rows_per_lane=TURN_ROWS_PER_LANE)
    engine = Engine(runner, config, counter)
    await engine.start()
    if together:
        # Half of them at once: however late the others are, there are rows to share.
        clients = (
            client(engine, source, is_late=number % 2 == 1) for number, source in enumerate(sources)
        )
        results = list(await asyncio.gather(*clients))
    else:
        results = [await submit(engine, GenerationRequest(source)).result() for source in sources]
    await engine.stop()
    return results, sum(counter.rows) / len(counter.rows)


async def client(engine: Engine, source: tuple[int, ...], *, is_late: bool) -> GenerationResult:
    """One client of many: it starts at once or later, and some cancel or stream."""
    chance = random.Random(hash(source))
    turns = chance.randrange(60)
    for _ in range(turns if is_late else 0):
        await asyncio.sleep(0)
    if chance.random() < 0.3:
        # Somebody else's request that leaves a hole in the middle of its translation.
        impatient = submit(engine, GenerationRequest(source[::-1]))
        async for _ in impatient:
            break
        impatient.cancel()
    generation = submit(engine, GenerationRequest(source))
    if chance.random() < 0.5:
        streamed = [token for tokens in [t async for t in generation] for token in tokens]
        assert streamed == (await generation.result()).token_ids
    return await generation.result()


def sources_of(config: ModelConfig) -> list[tuple[int, ...]]:
    return random_sources(config, NUM_REQUESTS, seed=1, max_length=40)


@pytest.fixture(scope="module")
def answers_alone(bundle: Bundle) -> tuple[list[GenerationResult], float]:
    """The results of `answers` one after another."""
    return asyncio.run(answers(bundle, sources_of(bundle.config), together=False))


@pytest.mark.parametrize("num_lanes", [0, 1, 2])
async def test_two_hundred_at_once_get_bit_by_bit_what_each_gets_alone(
    bundle: Bundle, answers_alone: tuple[list[GenerationResult], float], num_lanes: int
) -> None:
    sources = sources_of(bundle.config)
    alone, rows_alone = answers_alone
    together, rows_together = await answers(bundle, sources, together=True, num_lanes=num_lanes)
    assert rows_alone == 1
    assert rows_together > MAX_ROWS / 2
    for one, other in zip(alone, together, strict=True):
        assert one.token_ids == other.token_ids
        assert one.finish_reason is other.finish_reason
        assert one.log_probability == other.log_probability  # the same bits, not nearly the same
    # Otherwise the model would be too dull for this test to mean much.
    assert len({tuple(result.token_ids) for result in alone}) > NUM_REQUESTS / 2
    assert len({len(result.token_ids) for result in alone}) > 10
    assert {result.finish_reason for result in alone} == {FinishReason.EOS, FinishReason.LENGTH}


SEARCHES = [
    SearchOptions(),
    SearchOptions(beam_size=2, num_hypotheses=2),
    SearchOptions(beam_size=5, num_hypotheses=5, length_penalty=0.6, length_penalty_kind="gnmt"),
    SearchOptions(beam_size=3, early_stopping="never", no_repeat_ngram_size=2),
    SearchOptions(max_new_tokens=9, min_new_tokens=5, suppressed_ids=(300, 301, 302)),
    SearchOptions(prefix_ids=(270, 280), repetition_penalty=1.3),
    SearchOptions(sampling=Sampling(seed=11, temperature=1.3, top_p=0.95)),
    SearchOptions(beam_size=4, prefix_ids=(290,), repetition_penalty=1.1),
]


def searches_of(config: ModelConfig) -> list[GenerationRequest]:
    return [
        GenerationRequest(source, SEARCHES[number % len(SEARCHES)])
        for number, source in enumerate(random_sources(config, 120, seed=9, max_length=40))
    ]


@pytest.fixture(scope="module")
def found_alone(bundle: Bundle) -> list[GenerationResult]:
    """The results of `found` one after another."""
    return asyncio.run(found(bundle, searches_of(bundle.config), together=False))


@pytest.mark.parametrize("num_lanes", [0, 1, 2])
async def test_searches_of_all_kinds_mixed_get_bit_by_bit_what_each_gets_alone(
    bundle: Bundle, found_alone: list[GenerationResult], num_lanes: int
) -> None:
    """Neighbours, joins, leaves, padding, and reordered and moved beams, all at random."""
    alone = found_alone
    together = await found(bundle, searches_of(bundle.config), together=True, num_lanes=num_lanes)
    for one, other in zip(alone, together, strict=True):
        assert one.finish_reason is other.finish_reason
        assert one.hypotheses == other.hypotheses  # tokens, log-probabilities, scores: every bit
    assert len({tuple(result.token_ids) for result in alone}) > 100


async def found(
    bundle: Bundle, requests: list[GenerationRequest], *, together: bool, num_lanes: int = 0
) -> list[GenerationResult]:
    engine = Engine(
        runner_of(bundle, num_lanes),
        EngineConfig(encode_token_budget=64, turn_rows_per_lane=TURN_ROWS_PER_LANE),
    )
    await engine.start()

    async def one(request: GenerationRequest) -> GenerationResult:
        chance = random.Random(hash(request.source_ids))
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)
        if chance.random() < 0.3:  # another client's request, which is cancelled half-way
            impatient = submit(engine, GenerationRequest(request.source_ids[::-1], request.options))
            await asyncio.sleep(chance.random() * 0.01)
            impatient.cancel()
        return await submit(engine, request).result()

    if together:
        results = list(await asyncio.gather(*(one(request) for request in requests)))
    else:
        results = [await submit(engine, request).result() for request in requests]
    await engine.stop()
    return results


async def test_the_answers_are_those_of_the_reference_search(tmp_path: Path) -> None:
    model = random_model(tiny_config(), seed=5)
    sources = random_sources(model.config, 60, seed=2, max_length=40)
    results, _ = await answers(
        tiny_bundle(tmp_path / "bundle", model=model), sources, together=True
    )
    for source, result in zip(sources, results, strict=True):
        [expected] = greedy_search(model, torch.tensor([source]))
        assert tuple(result.token_ids) == expected.token_ids
        assert (result.finish_reason is FinishReason.EOS) == expected.finished
        assert result.log_probability == pytest.approx(sum(expected.log_probs), abs=1e-3)

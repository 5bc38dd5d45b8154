"""The engine with real graphs: an answer does not depend on other requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from bench.submission import submit
from model.bundle.bundle import Bundle
from model.bundle.config import ModelConfig
from model.bundle.sessions import SessionSettings
from service.batching.events import Iteration
from service.domain.requests import FinishReason, GenerationRequest, GenerationResult, SearchOptions
from service.domain.sampling import Sampling
from service.engine.engine import Engine, EngineConfig
from service.engine.interface import EngineObserver
from service.runtime.cpu.lanes import OnnxLanes
from service.runtime.cpu.runner import OnnxRunner
from tests.factories import random_sources, tiny_bundle

NUM_REQUESTS = 200
MAX_ROWS = 16
# Few enough that rows change between one lane and several.
TURN_ROWS_PER_LANE = 3

# Half of the requests are greedy ones.
SEARCHES = [
    SearchOptions(beam_size=2, num_hypotheses=2),
    SearchOptions(beam_size=5, num_hypotheses=5, length_penalty=0.6, length_penalty_kind="gnmt"),
    SearchOptions(beam_size=3, early_stopping="never", no_repeat_ngram_size=2),
    SearchOptions(max_new_tokens=9, min_new_tokens=5, suppressed_ids=(300, 301, 302)),
    SearchOptions(prefix_ids=(270, 280), repetition_penalty=1.3),
    SearchOptions(sampling=Sampling(seed=11, temperature=1.3, top_p=0.95)),
    SearchOptions(beam_size=4, prefix_ids=(290,), repetition_penalty=1.1),
]


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


def requests_of(config: ModelConfig) -> list[GenerationRequest]:
    return [
        GenerationRequest(
            source, SEARCHES[number // 2 % len(SEARCHES)] if number % 2 else SearchOptions()
        )
        for number, source in enumerate(random_sources(config, NUM_REQUESTS, seed=1, max_length=40))
    ]


async def answers(
    bundle: Bundle, *, together: bool, num_lanes: int = 0
) -> tuple[list[GenerationResult], float]:
    """The result of each request, and the mean number of rows in a step."""
    counter = RowCounter()
    config = EngineConfig(encode_token_budget=64, turn_rows_per_lane=TURN_ROWS_PER_LANE)
    engine = Engine.of_runner(runner_of(bundle, num_lanes), config, counter)
    requests = requests_of(bundle.config)
    await engine.start()
    if together:
        results = list(await asyncio.gather(*(client(engine, request) for request in requests)))
    else:
        results = [await submit(engine, request).result() for request in requests]
    await engine.stop()
    return results, sum(counter.rows) / len(counter.rows)


async def client(engine: Engine, request: GenerationRequest) -> GenerationResult:
    """One client of many: it starts at once or later, and some cancel or stream."""
    chance = random.Random(hash(request.source_ids))
    # Half of them at once: however late the others are, there are rows to share.
    for _ in range(chance.choice((0, chance.randrange(60)))):
        await asyncio.sleep(0)
    if chance.random() < 0.3:
        # Somebody else's request that leaves a hole in the middle of its translation.
        impatient = submit(engine, GenerationRequest(request.source_ids[::-1], request.options))
        await asyncio.sleep(chance.random() * 0.01)
        impatient.cancel()
    generation = submit(engine, request)
    if chance.random() < 0.5 and request.options.beam_size == 1:
        streamed = [token async for tokens in generation for token in tokens]
        assert streamed == (await generation.result()).token_ids
    return await generation.result()


@pytest.fixture(scope="module")
def answers_alone(bundle: Bundle) -> list[GenerationResult]:
    """The results of `answers` one after another."""
    return asyncio.run(answers(bundle, together=False))[0]


@pytest.mark.parametrize("num_lanes", [0, 1, 2])
async def test_two_hundred_at_once_get_bit_by_bit_what_each_gets_alone(
    bundle: Bundle, answers_alone: list[GenerationResult], num_lanes: int
) -> None:
    """Neighbours, joins, leaves, padding, and reordered and moved beams, all at random."""
    together, num_rows = await answers(bundle, together=True, num_lanes=num_lanes)
    assert num_rows > MAX_ROWS / 2
    for one, other in zip(answers_alone, together, strict=True):
        assert one.finish_reason is other.finish_reason
        assert one.hypotheses == other.hypotheses  # tokens, log-probabilities, scores: every bit
    # Otherwise the model would be too dull for this test to mean much.
    greedy = answers_alone[::2]
    assert len({tuple(result.token_ids) for result in greedy}) > len(greedy) / 2
    assert len({len(result.token_ids) for result in greedy}) > 10
    assert {result.finish_reason for result in greedy} == {FinishReason.EOS, FinishReason.LENGTH}

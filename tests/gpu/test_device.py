"""On a GPU: against PyTorch, graphs against none, one against many, cancelling, start, scores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from bench.submission import submit_many
from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings
from service.domain.plan import Adjustments, EncodeItem, ScoreItem, StepPlan
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    SearchOptions,
)
from service.engine.engine import Engine, EngineConfig
from service.errors import StartupError
from service.runtime.cuda.runner import DeviceRunner
from service.runtime.cuda.step import CAPTURED_TOP_K
from service.runtime.scoring import OnnxScorer
from tests.runner_loops import greedy_steps

from .conftest import Case, device

# Half precision moves log-probabilities by a few hundredths: two tokens that float32 holds for
# nearly equal may change places (`export.parity` allows as much).
NEAR_TIE = 0.1

Record = Callable[[str, object], None]


def translate(
    runner: DeviceRunner, sources: Sequence[tuple[int, ...]], options: SearchOptions | None = None
) -> list[GenerationResult]:
    """All at once, through an engine."""

    async def run() -> list[GenerationResult]:
        requests = [GenerationRequest(source, options or SearchOptions()) for source in sources]
        num_rows = sum(request.num_rows for request in requests)
        engine = Engine.of_runner(
            runner, EngineConfig(max_waiting=2 * num_rows, encode_token_budget=4096)
        )
        await engine.start()
        generations = submit_many(engine, requests)
        results = [await generation.result() for generation in generations]
        await engine.stop(60.0)
        return results

    return asyncio.run(run())


def check_near_ties(
    case: Case, sources: Sequence[tuple[int, ...]], ours: list[list[int]], theirs: list[list[int]]
) -> float:
    """The share of translations that are identical; the others begin to differ at a near tie."""
    pairs = list(zip(sources, ours, theirs, strict=True))
    different = [(source, a, b) for source, a, b in pairs if a != b]
    for source, a, b in different:
        assert case.gap(source, a, b) < NEAR_TIE
    return 1 - len(different) / len(pairs)


def test_translations_are_pytorchs(case: Case, record_property: Record) -> None:
    found = translate(case.runner(256), case.sources)
    assert all(result.error is None for result in found)
    expected = case.reference(case.sources)
    ours = [result.token_ids for result in found]
    identical = check_near_ties(case, case.sources, ours, [list(h.token_ids) for h in expected])
    record_property("identical", identical)
    print(f"\n{identical:.1%} of {len(ours)} translations are PyTorch's, token by token")
    assert identical >= 0.9


def test_beams_score_no_worse_than_greedy(case: Case) -> None:
    sources = case.sources[:200]
    greedy = translate(case.runner(64), sources)
    beams = translate(case.runner(256), sources, SearchOptions(beam_size=4, length_penalty=0.0))
    worse = [
        beam.log_probability < one.log_probability - NEAR_TIE
        for beam, one in zip(beams, greedy, strict=True)
    ]
    # A beam can lose what greedy search finds, rarely; rows that were moved wrongly lose often.
    assert np.mean(worse) <= 0.05


@pytest.mark.parametrize("options", [SearchOptions(), SearchOptions(beam_size=4)])
def test_graphs_change_nothing(case: Case, options: SearchOptions) -> None:
    sources = case.sources[:200]
    captured, plain = case.runner(64), case.runner(64, captures=False)
    if device() != "cpu":
        assert captured.num_captures == len(CAPTURED_TOP_K) * len(captured.buckets.sizes)
    assert plain.num_captures == 0
    with_graphs, without = (translate(runner, sources, options) for runner in (captured, plain))
    same = [
        one.token_ids == other.token_ids for one, other in zip(with_graphs, without, strict=True)
    ]
    # Who steps together differs from run to run, and with it the rounding.
    assert np.mean(same) >= 0.95


def test_one_graph_serves_every_length(case: Case) -> None:
    """`total_sequence_length` is frozen when a graph is captured: at the buffer's length."""
    length = case.bundle.max_target_positions
    sources = case.sources[:3]
    captured, plain = case.runner(4), case.runner(4, captures=False)
    pairs = zip(
        greedy_steps(captured, sources, length), greedy_steps(plain, sources, length), strict=True
    )
    for step, (one, other) in enumerate(pairs):
        assert np.allclose(one.log_sum_exp, other.log_sum_exp, atol=0.02), f"step {step}"
        if (one.top_ids[:, 0] != other.top_ids[:, 0]).any():
            break  # rounding decided; what follows is another text
    assert step >= 5
    captured.close()
    plain.close()


def test_one_alone_against_512(case: Case, record_property: Record) -> None:
    sources = (case.sources * 512)[:512] if device() != "cpu" else case.sources
    together = translate(case.runner(512), sources)
    picked = list(range(0, len(sources), max(1, len(sources) // 64)))
    alone_runner = case.runner(1)
    alone = translate(alone_runner, [sources[i] for i in picked])
    identical = check_near_ties(
        case,
        [sources[i] for i in picked],
        [together[i].token_ids for i in picked],
        [result.token_ids for result in alone],
    )
    record_property("identical", identical)
    print(f"\n{identical:.1%} of {len(picked)} translations are the same alone and among 512")
    assert identical >= 0.9


def test_cancelling_in_mid_flight_leaves_the_others_alone(case: Case) -> None:
    sources = [source for source in case.sources if len(source) > 6][:64]
    expected = translate(case.runner(64), sources)

    async def run() -> list[GenerationResult]:
        engine = Engine.of_runner(case.runner(64), EngineConfig(max_waiting=256))
        await engine.start()
        generations = submit_many(engine, [GenerationRequest(source) for source in sources])
        async for _ in generations[0]:
            break  # all of them are in flight
        for generation in generations[::2]:
            generation.cancel()
        late = submit_many(engine, [GenerationRequest(source) for source in sources[::2]])
        results = [await generation.result() for generation in generations]
        again = [await generation.result() for generation in late]
        await engine.stop(60.0)
        assert {result.finish_reason for result in again} <= {FinishReason.EOS, FinishReason.LENGTH}
        return results

    results = asyncio.run(run())
    same = 0
    for number, (result, whole) in enumerate(zip(results, expected, strict=True)):
        if number % 2:
            assert result.error is None
            same += result.token_ids == whole.token_ids
        elif result.finish_reason is FinishReason.CANCELLED:
            assert len(result.token_ids) <= case.bundle.max_target_positions
    assert same >= 0.9 * len(results[1::2])


def test_adjustments_run_beside_the_graphs(case: Case) -> None:
    """They can't be captured: a step with them runs without a graph, the next one with it again."""
    runner = case.runner(4)
    start = np.full(2, 2, np.int64), np.zeros(2, np.int32)
    items = [EncodeItem((row,), case.sources[row]) for row in range(2)]
    first = runner.execute(StepPlan((), items, *start, top_k=1))
    best = first.top_ids[:, 0]
    forbid = Adjustments(np.arange(2), best, np.full(2, -np.inf, np.float32))
    assert (runner.execute(StepPlan((), (), *start, forbid, top_k=1)).top_ids[:, 0] != best).all()
    again = runner.execute(StepPlan((), (), *start, top_k=1))
    assert (again.top_ids[:, 0] == best).all()
    runner.close()


def test_rows_by_free_memory(case: Case) -> None:
    if device() == "cpu":
        pytest.skip("a CPU's memory is not asked for")
    runner = case.runner(None)
    assert 1 <= runner.limits.max_rows <= 512
    assert runner.arena_bytes > 0
    runner.close()


def test_too_little_memory_at_the_start_says_what_to_do(case: Case) -> None:
    with pytest.raises(StartupError, match=r"too little memory.*--max-rows"):
        case.runner(10**9)
    alive = translate(case.runner(4), case.sources[:4])
    assert all(result.error is None for result in alive)


def test_the_bundle_is_the_one_for_gpus(case: Case) -> None:
    bundle: Bundle = case.bundle
    assert (bundle.precision, bundle.is_resident) == ("fp16", True)


# --- scores ---------------------------------------------------------------------------------------


def test_scores_are_pytorchs(case: Case) -> None:
    sources = case.sources[:32]
    # Each with the next one's as its translation: most are improbable, which strains halves most.
    items = [ScoreItem(*pair) for pair in zip(sources, [*sources[1:], sources[0]], strict=True)]
    scorer = OnnxScorer(case.bundle, SessionSettings(device()), None)
    scorer.prepare()
    model = case.model.float()
    where = next(model.parameters()).device
    layer, head = case.bundle.alignment_layer, case.bundle.alignment_head
    assert layer is not None
    for item, score in zip(items, scorer.score(items), strict=True):
        source = torch.tensor([item.source_ids], device=where)
        fed = torch.tensor([[model.config.bos_id, *item.target_ids[:-1]]], device=where)
        with torch.inference_mode():
            everything = model(source, fed)[0].double().log_softmax(-1)
            every = model.attention_weights(source, fed).decoder_cross[layer][0]
        weights = every.mean(0) if head is None else every[head]
        expected = everything[range(len(item.target_ids)), list(item.target_ids)].cpu().numpy()
        assert np.abs(score.log_probabilities - expected).max() < 0.1
        assert np.abs(score.attention - weights.cpu().numpy()).max() < 0.05
        assert np.abs(score.attention.sum(axis=1) - 1.0).max() < 1e-3

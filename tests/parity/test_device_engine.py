"""Engines on a runner of GPUs: searches, and the start."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from bench.gpu.host_stream import HostStream, open_on
from bench.submission import submit
from model.bundle.bundle import Bundle
from service.domain.plan import ModelRunner
from service.domain.requests import GenerationRequest, GenerationResult, SearchOptions
from service.domain.sampling import Sampling
from service.engine.engine import Engine, EngineConfig
from service.errors import StartupError
from service.runtime.cpu.runner import OnnxRunner
from service.runtime.cuda.memory import DeviceMemory, bytes_beside_rows
from service.runtime.cuda.model import DeviceModel
from service.runtime.cuda.runner import DeviceOptions, DeviceRunner
from service.runtime.cuda.step import DeviceStep
from tests.factories import random_sources, tiny_bundle
from tests.late_stream import LateStream
from tests.parity.device_runners import CPU, MAX_ROWS, bundle, device_runner, runners
from tests.runner_loops import greedy_steps, same_steps

__all__ = ["bundle", "runners"]  # fixtures

MEMORY = 240_000_000


# --- under an engine -----------------------------------------------------------------------------

SEARCHES = [
    SearchOptions(),
    SearchOptions(),
    SearchOptions(beam_size=2, num_hypotheses=2),
    SearchOptions(beam_size=5, num_hypotheses=5, length_penalty=0.6, length_penalty_kind="gnmt"),
    SearchOptions(beam_size=3, early_stopping="never", no_repeat_ngram_size=2),
    SearchOptions(prefix_ids=(270, 280), repetition_penalty=1.3),
    SearchOptions(sampling=Sampling(seed=11, temperature=1.3, top_p=0.95)),
]


async def answers(runner: ModelRunner, requests: list[GenerationRequest]) -> list[GenerationResult]:
    engine = Engine.of_runner(runner, EngineConfig(encode_token_budget=64))
    await engine.start()

    async def one(request: GenerationRequest) -> GenerationResult:
        chance = random.Random(hash(request.source_ids))
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)
        if chance.random() < 0.3:  # another client's request, which is cancelled half-way
            impatient = submit(engine, GenerationRequest(request.source_ids[::-1], request.options))
            await asyncio.sleep(chance.random() * 0.01)
            impatient.cancel()
        generation = submit(engine, request)
        if chance.random() < 0.5 and request.options.beam_size == 1:
            tokens = [token async for some in generation for token in some]
            assert tokens == (await generation.result()).token_ids
        return await generation.result()

    results = list(await asyncio.gather(*map(one, requests)))
    await engine.stop()
    return results


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("kinds", [SEARCHES, [SearchOptions(), SearchOptions(max_new_tokens=7)]])
async def test_searches_of_all_kinds_are_the_other_runners(
    tmp_path: Path, depth: int, kinds: list[SearchOptions]
) -> None:
    """In float32, in which an answer does not depend on other requests; for any depth."""
    bundle = tiny_bundle(tmp_path / "bundle", resident=True)
    sources = random_sources(bundle.config, 90, seed=9, max_length=40)
    requests = [
        GenerationRequest(source, kinds[number % len(kinds)])
        for number, source in enumerate(sources)
    ]
    late = LateStream()
    found = await answers(device_runner(bundle, depth=depth, stream=late), requests)
    assert late.num_copies > 60
    assert late.complaints == []
    wanted = await answers(OnnxRunner(bundle, max_rows=MAX_ROWS, intra_op_threads=1), requests)
    for one, other in zip(found, wanted, strict=True):
        assert one.finish_reason is other.finish_reason
        assert one.hypotheses == other.hypotheses


# --- start-up ------------------------------------------------------------------------------------


def test_a_bundle_without_the_graphs_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"no graphs for GPUs: export.*--precision fp16"):
        device_runner(tiny_bundle(tmp_path / "bundle"))


def test_rows_follow_from_the_memory_that_is_free(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", resident=True)
    asked = []

    def memory(index: int) -> DeviceMemory:
        asked.append(index)
        return DeviceMemory(free=MEMORY, total=3 * MEMORY)

    runner = DeviceRunner(bundle, CPU, DeviceOptions(), memory=memory, stream=open_on)
    # 2 layers, keys and values, 129 positions of width 32 in float32, and what a step takes.
    per_row = 2 * 2 * 129 * 32 * 4 + 4 + 16 * 320 + 64 * (32 + 48)
    rows = (0.9 * MEMORY - bytes_beside_rows(bundle)) // per_row
    assert runner.limits.max_rows <= rows < 2 * runner.limits.max_rows
    assert asked == [0]
    runner.close()
    room: list[DeviceMemory] = []
    for options, free in ((DeviceOptions(), 10), (DeviceOptions(num_models=9), MEMORY)):
        room[:] = [DeviceMemory(free, free)]
        with pytest.raises(StartupError, match="a single row needs"):
            DeviceRunner(bundle, CPU, options, memory=room.__getitem__, stream=open_on)


def test_too_little_memory_says_what_to_do(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", resident=True)
    with pytest.raises(StartupError, match=r"cpu has too little memory for .*--max-rows"):
        device_runner(bundle, max_rows=10**9)


def test_a_graph_that_cannot_be_captured_is_run_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Either the session can't be opened for captures, or a capture fails."""
    bundle = tiny_bundle(tmp_path / "bundle", resident=True)
    sources = random_sources(bundle.config, 3, seed=2)
    plain = device_runner(bundle)
    expected = greedy_steps(plain, sources, 3)
    plain.close()
    for name in ("__init__", "capture"):
        whole = getattr(DeviceStep, name)

        def refuse(step: DeviceStep, *args: Any, whole: Any = whole, **given: Any) -> Any:
            if given.get("captures", getattr(step, "_graphs", None)):
                raise RuntimeError("this cannot be captured")
            return whole(step, *args, **given)

        with monkeypatch.context() as patch:
            patch.setattr(DeviceStep, name, refuse)
            # Only on a GPU is it tried at all: what the runner takes for one is the CPU.
            patch.setattr(DeviceModel, "_is_on_gpu", True)
            runner = DeviceRunner(
                bundle, CPU, DeviceOptions(max_rows=MAX_ROWS),
                memory=lambda _: None, stream=lambda _: HostStream(),
            )  # fmt: skip
        assert runner.num_captures == 0
        assert "no CUDA graph could be captured" in caplog.text
        assert same_steps(greedy_steps(runner, sources, 3), expected)
        runner.close()
        caplog.clear()


def test_captures_leave_the_state_as_it_was(
    runners: tuple[DeviceRunner, OnnxRunner], bundle: Bundle
) -> None:
    """On a CPU nothing is captured, but the steps run: rows that don't run keep their state."""
    device, plain = runners
    sources = random_sources(bundle.config, 5, seed=12)
    expected = greedy_steps(plain, sources, 3)
    model = device._model
    captured = DeviceStep(
        bundle, CPU, model._caches, device.buckets, device.limits, model.stream, captures=True
    )
    assert captured.capture() == len(captured.captured_top_k) * len(device.buckets.sizes)
    model._step, kept = captured, model._step
    assert same_steps(greedy_steps(device, sources, 3), expected)
    model._step = kept

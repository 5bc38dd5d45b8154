"""Steps launched before earlier steps are read, on a pretended slow device."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from bench.submission import submit
from model.bundle.bundle import Bundle
from model.bundle.cuda import CudaError
from service.domain.plan import StepPlan
from service.domain.requests import GenerationRequest
from service.engine.engine import Engine
from service.errors import ResourceExhaustedError
from service.runtime.cpu.runner import OnnxRunner
from service.runtime.cuda.caches import DeviceCaches
from service.runtime.cuda.encoder import DeviceEncoder
from tests.factories import random_sources, tiny_bundle
from tests.late_stream import LateStream
from tests.parity.device_runners import CPU, MAX_ROWS, device_runner, start
from tests.runner_loops import first_plan, greedy_steps, rows_equal, same, same_steps


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return tiny_bundle(tmp_path_factory.mktemp("flights") / "bundle", resident=True)


@pytest.fixture(scope="module")
def plain(bundle: Bundle) -> Iterator[OnnxRunner]:
    runner = OnnxRunner(bundle, max_rows=MAX_ROWS, intra_op_threads=1)
    yield runner
    runner.close()


def go_on(num_rows: int) -> StepPlan:
    chained = np.ones(num_rows, np.bool_)
    return StepPlan((), (), *start(num_rows), top_k=8, chained=chained)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_as_many_steps_are_launched_as_there_may_be_before_the_first_is_seen(
    bundle: Bundle, plain: OnnxRunner, depth: int
) -> None:
    late = LateStream()
    device = device_runner(bundle, depth=depth, stream=late)
    sources = random_sources(bundle.config, 6, seed=14)
    expected = greedy_steps(plain, sources, depth + 1)
    assert same(device.execute(first_plan(sources, top_k=8)), expected[0])
    late.hold()
    futures = [device.submit(go_on(6)) for _ in range(depth)]
    assert late.await_copies(1 + depth)
    assert not any(future.done() for future in futures)
    late.let_go()
    going = {row for row in range(6) if expected[0].top_ids[row, 0] != bundle.config.eos_id}
    for future, wanted in zip(futures, expected[1:], strict=True):
        assert all(rows_equal(future.result(), row, wanted, row) for row in going)
        going -= {row for row in going if wanted.top_ids[row, 0] == bundle.config.eos_id}
    assert late.complaints == []
    device.close()


def test_what_a_step_brought_is_the_askers_own(bundle: Bundle, plain: OnnxRunner) -> None:
    """The output is copied from memory that later steps use again."""
    device = device_runner(bundle, stream=LateStream())
    sources = random_sources(bundle.config, 1, seed=15)  # a single row: its parts lie in one piece
    assert same_steps(greedy_steps(device, sources, 8), greedy_steps(plain, sources, 8))
    device.close()


def test_times_of_steps_in_flight_do_not_overlap(bundle: Bundle) -> None:
    device = device_runner(bundle, depth=3)
    plan = first_plan(random_sources(bundle.config, 1, seed=16))
    begun = time.perf_counter()
    futures = [device.submit(plan)]
    futures += [device.submit(go_on(1)) for _ in range(20)]
    outputs = [future.result() for future in futures]
    passed = time.perf_counter() - begun
    assert outputs[0].encode_seconds > 0
    assert all(output.encode_seconds == 0 for output in outputs[1:])
    assert all(output.step_seconds > 0 for output in outputs)
    assert sum(output.encode_seconds + output.step_seconds for output in outputs) <= passed
    device.close()


async def test_a_step_that_fails_on_the_device_fails_alone(bundle: Bundle) -> None:
    """The error is unknown at the launch, and raised when the step is waited for."""
    late = LateStream()
    device = device_runner(bundle, depth=3, stream=late)
    sources = random_sources(bundle.config, 4, seed=17)
    before = greedy_steps(device, sources, 6)
    lost = CudaError("cudaEventSynchronize: cudaErrorIllegalAddress: an illegal access")
    late.failing = [lost, lost]
    futures = [device.submit(first_plan(sources, top_k=8)), device.submit(go_on(4))]
    for future in futures:
        with pytest.raises(CudaError, match="illegal access"):
            future.result()
    assert same_steps(before, greedy_steps(device, sources, 6))
    late.failing = [CudaError("cudaLaunch: cudaErrorMemoryAllocation: out of memory")]
    engine = Engine.of_runner(device)
    await engine.start()
    failed = await submit(engine, GenerationRequest(sources[0])).result()
    assert isinstance(failed.error, ResourceExhaustedError)
    again = await submit(engine, GenerationRequest(sources[0])).result()
    assert again.error is None
    await engine.stop()


def test_a_step_that_cannot_be_launched_fails_alone_with_others_in_flight(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = LateStream()
    device = device_runner(bundle, depth=3, stream=late)
    sources = random_sources(bundle.config, 4, seed=17)
    before = greedy_steps(device, sources, 6)
    plan = first_plan(sources, top_k=8)
    num_copies = late.num_copies
    late.hold()
    in_flight = [device.submit(plan), device.submit(go_on(4))]
    assert late.await_copies(num_copies + 2)

    def fail(*_: object) -> None:
        raise MemoryError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(late, "copy_in", fail)
        failing = device.submit(plan)
        late.let_go()
        with pytest.raises(MemoryError):
            failing.result()
    assert same(in_flight[0].result(), before[0])
    assert in_flight[1].exception() is None
    for _ in range(5):  # as many as there are places in the ring, and one more
        assert same_steps(before, greedy_steps(device, sources, 6))
    assert late.complaints == []
    device.close()


def test_nobody_has_to_wait_for_a_step(bundle: Bundle) -> None:
    late = LateStream()
    device = device_runner(bundle, stream=late)
    late.hold()
    plan = first_plan(random_sources(bundle.config, 1, seed=18))
    forgotten = device.submit(plan)
    assert forgotten.cancel()
    late.let_go()
    for _ in range(5):
        assert device.execute(plan).top_ids.shape[0] == 1
    device.close()


def test_what_a_failed_launch_held_is_freed_at_once(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch failed for lack of memory: the next one must not need the garbage collector."""
    device = device_runner(bundle, stream=LateStream())
    held: list[weakref.ref[Large]] = []

    def store(self: DeviceCaches, *_: object) -> None:
        large = Large()
        held.append(weakref.ref(large))
        raise MemoryError("out of memory")

    monkeypatch.setattr(DeviceCaches, "store", store)
    plan = first_plan(random_sources(bundle.config, 1, seed=18))
    gc.collect()
    gc.disable()
    try:
        future = device.submit(plan)
        assert isinstance(future.exception(), MemoryError)
        assert [ref() for ref in held] == [None]
    finally:
        gc.enable()
    device.close()


class Large:
    """A large object that should not be kept alive."""


def test_closing_waits_for_steps_in_flight(bundle: Bundle) -> None:
    late = LateStream()
    device = device_runner(bundle, stream=late)
    plan = first_plan(random_sources(bundle.config, 1, seed=18))
    late.hold()
    futures = [device.submit(plan), device.submit(go_on(1))]
    closing = threading.Thread(target=device.close)
    closing.start()
    assert late.await_copies(2)
    assert not futures[0].done()
    late.let_go()
    closing.join(60)
    assert not closing.is_alive()
    assert all(future.result().top_ids.shape[0] == 1 for future in futures)
    with pytest.raises(RuntimeError, match="closed"):
        device.submit(go_on(1))
    with pytest.raises(RuntimeError, match="closed"):
        device.encoder_session.run(["cross_key_0"], {})


def test_others_encode_between_steps(bundle: Bundle) -> None:
    device = device_runner(bundle, stream=LateStream())
    sources = random_sources(bundle.config, 3, seed=19)
    future = device.submit(first_plan(sources, top_k=8))
    feeds = {
        "source_ids": np.array([sources[0]]),
        "source_lengths": np.array([len(sources[0])], np.int32),
    }
    [found] = device.encoder_session.run(["cross_key_0"], feeds)
    assert future.result().top_ids.shape == (3, min(8, bundle.config.vocab_size))
    [alone] = DeviceEncoder(bundle, CPU).session.run(["cross_key_0"], feeds)
    assert (found == alone).all()
    device.close()

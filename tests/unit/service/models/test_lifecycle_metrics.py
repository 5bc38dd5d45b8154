"""Life cycles of models: metrics of the version that serves, and sleep after some time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.batching.events import Iteration
from service.domain.requests import FinishReason, GenerationRequest, GenerationResult
from service.engine.metrics import ModelMetrics
from service.errors import FailedPreconditionError, StartupError
from service.models.idle import IdleMonitor
from service.models.lifecycle.metrics import LifecycleMetrics
from service.models.lifecycle.model_lifecycle import ModelLifecycle
from service.observability.metrics import ServerMetrics
from tests.fake_versions import Place, Places, state_of

Value = Callable[..., float | None]


@pytest.fixture
def metrics() -> ServerMetrics:
    return ServerMetrics()


@pytest.fixture
def value(metrics: ServerMetrics) -> Value:
    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"model": "m", **labels})

    return value


def works(observer: ModelMetrics, num_running: int) -> None:
    """Report an iteration with so many rows, and a sentence that ended."""
    observer.on_iterations([Iteration(num_running, num_running, num_rows=num_running)])
    observer.on_held_back(num_running)
    result = GenerationResult([7, 8], FinishReason.EOS)
    observer.on_finished(result, GenerationRequest(source_ids=(5, 3)))


def version(metrics: ServerMetrics, number: str, *, is_current: bool) -> ModelMetrics:
    observer = ModelMetrics(metrics, "m", is_current=is_current)
    observer.set_processes(os.getpid())
    observer.set_capacity(rows=int(number), max_waiting=1, cache_bytes=int(number))
    observer.describe(
        version=number, precision="int8", device="cpu", source="en", target=f"d{number}"
    )
    return observer


def test_gauges_are_of_the_current_version_and_counters_of_both(
    metrics: ServerMetrics, value: Value
) -> None:
    def info(number: str) -> float | None:
        labels = {"precision": "int8", "device": "cpu", "source": "en", "target": f"d{number}"}
        return value("dragoman_model_info", version=number, **labels)

    def rows() -> tuple[float | None, ...]:
        names = ("dragoman_rows", "dragoman_rows_used", "dragoman_held_back_calls")
        return tuple(map(value, names))

    old = version(metrics, "1", is_current=True)
    works(old, 8)
    new = version(metrics, "2", is_current=False)
    works(new, 5)  # its warm-up
    assert (rows(), info("1"), info("2")) == ((1, 8, 8), 1, None)
    assert value("dragoman_target_tokens_total") == 2
    old.on_retired()
    new.on_current()
    works(new, 3)
    works(old, 4)
    assert (rows(), info("1"), info("2")) == ((2, 3, 3), None, 1)
    assert value("dragoman_target_tokens_total") == 6
    new.on_retired()
    assert rows() == (2, 0, 0)
    assert value("dragoman_cache_bytes") == 0
    assert value("dragoman_model_process_resident_memory_bytes") is None


async def test_reloads_wakes_and_states_are_shown(metrics: ServerMetrics, value: Value) -> None:
    places = Places(Place("1"), Place("2", error=StartupError("bad")), name="m")
    model = ModelLifecycle(places.first(), LifecycleMetrics(metrics))
    await model.start()

    def figures() -> list[float | None]:
        reloads = [
            value("dragoman_model_reloads_total", result=each) for each in ("success", "failure")
        ]
        return [*reloads, value("dragoman_model_last_reload_successful")]

    def state() -> list[float | None]:
        states = ("serving", "asleep", "loading")
        return [value("dragoman_model_state", state=each) for each in states]

    assert (figures(), state()) == ([0, 0, 1], [1, 0, 0])
    with pytest.raises(FailedPreconditionError):
        await model.replace(Path("/1"), 60)
    assert figures() == [0, 1, 0]
    assert not await model.is_changed()
    assert figures() == [0, 1, 1]
    with pytest.raises(FailedPreconditionError):
        await model.replace(Path("/1"), 60)
    await model.replace(Path("/0"), 60)
    assert figures() == [1, 2, 1]
    await model.sleep()
    assert state() == [0, 1, 0]
    with await model.lease():
        assert state() == [1, 0, 0]
    assert value("dragoman_model_wakes_total", result="success") == 1
    await model.stop()


# --- sleep ----------------------------------------------------------------------------------------

IDLE = 10.0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 1.0), st.booleans()), max_size=60))
async def test_a_model_sleeps_after_the_time_without_a_call_and_not_before(
    checks: list[tuple[float, bool]],
) -> None:
    """Time between two checks, and whether a call came in it."""
    model = ModelLifecycle(Places(Place("1")).first())
    await model.start()
    monitor, now = IdleMonitor([model], IDLE), 1e6
    last_busy = now  # the first check after the start or a call
    await monitor.check(now)
    for elapsed, has_call in checks:
        now += elapsed
        if has_call:
            with await model.lease():
                pass
            last_busy = now
        await monitor.check(now)
        is_asleep = state_of(model) == "asleep"
        assert is_asleep == (now - last_busy >= IDLE)
    await model.stop()


async def test_a_long_call_keeps_a_model_awake_and_its_end_begins_the_time() -> None:
    model = ModelLifecycle(Places(Place("1")).first())
    await model.start()
    monitor = IdleMonitor([model], IDLE)
    with await model.lease():
        for now in range(100):
            await monitor.check(float(now))
            assert state_of(model) == "serving"
    await monitor.check(99 + IDLE - 1)
    assert state_of(model) == "serving"
    await monitor.check(99 + IDLE)
    assert state_of(model) == "asleep"
    await model.stop()


async def test_another_version_begins_the_time() -> None:
    model = ModelLifecycle(Places(Place("1"), Place("2")).first())
    await model.start()
    monitor = IdleMonitor([model], IDLE)
    await monitor.check(0.0)
    await model.replace(Path("/1"), 60)
    await model.wait_until_drained()
    await monitor.check(IDLE)
    assert state_of(model) == "serving"
    await monitor.check(2 * IDLE)
    assert state_of(model) == "asleep"
    await model.stop()


async def test_each_model_has_its_own_time() -> None:
    models = [ModelLifecycle(Places(Place("1"), name=name).first()) for name in ("a", "b")]
    for model in models:
        await model.start()
    monitor = IdleMonitor(models, IDLE)
    await monitor.check(0.0)
    with await models[1].lease():
        pass
    await monitor.check(IDLE)
    assert [state_of(model) for model in models] == ["asleep", "serving"]
    for model in models:
        await model.stop()

"""Models are put to sleep after some time without calls, in virtual time."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from service.models.idle import IdleMonitor
from service.models.lifecycle.model_lifecycle import ModelLifecycle
from tests.fake_versions import Place, Places, state_of

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

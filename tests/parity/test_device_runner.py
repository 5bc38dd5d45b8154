"""The runner for GPUs on a CPU: the same code and graphs, without CUDA graphs."""

from __future__ import annotations

import dataclasses
import random
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from bench.gpu.host_stream import open_on
from model.bundle.bundle import Bundle
from service.domain.plan import (
    Adjustments,
    AsyncRunner,
    EncodeItem,
    ModelRunner,
    RowCopy,
    StepOutput,
    StepPlan,
)
from service.runtime.cpu.runner import OnnxRunner
from service.runtime.cuda import caches as device_caches
from service.runtime.cuda.runner import DeviceOptions, DeviceRunner
from service.runtime.cuda.staging import Staging
from tests.factories import random_sources, tiny_bundle, with_limits
from tests.parity.device_runners import CPU, MAX_ROWS, bundle, runners, start
from tests.runner_loops import (
    NO_ROWS,
    first_plan,
    follow_ups,
    greedy_steps,
    rows_equal,
    same,
    same_steps,
)

__all__ = ["bundle", "runners"]  # fixtures


def both(runners: tuple[DeviceRunner, OnnxRunner], plan: StepPlan) -> StepOutput:
    """Execute the plan on both runners, which must agree bit for bit."""
    outputs = [runner.execute(plan) for runner in runners]
    assert same(*outputs)
    return outputs[0]


def test_greedy_is_the_other_runners_bit_by_bit(
    runners: tuple[DeviceRunner, OnnxRunner], bundle: Bundle
) -> None:
    for count in (1, 3, 8, 20):
        sources = random_sources(bundle.config, count, seed=count)
        assert same_steps(*(greedy_steps(runner, sources, 15) for runner in runners))


def test_a_step_follows_with_the_same_bits(
    runners: tuple[DeviceRunner, OnnxRunner], bundle: Bundle
) -> None:
    sources = random_sources(bundle.config, 3, seed=5)
    wanted = greedy_steps(runners[1], sources, 6)
    for runner in runners:
        assert same_steps(follow_ups(runner, first_plan(sources), 6), wanted)


def test_plans_at_random(runners: tuple[DeviceRunner, OnnxRunner], bundle: Bundle) -> None:
    """Rows join, leave, are chained and forced, and have different numbers of candidates."""
    chance = random.Random(7)
    generator = np.random.default_rng(7)
    positions: list[int] = []  # of each row
    for _ in range(120):
        encodes, copies = [], []
        while len(positions) < MAX_ROWS - 3 and chance.random() < 0.4:
            rows = tuple(range(len(positions), len(positions) + chance.choice([1, 1, 3])))
            positions += [0] * len(rows)
            [source] = random_sources(bundle.config, 1, seed=chance.randrange(10**6), max_length=60)
            encodes.append(EncodeItem(rows, source))
        old = len(positions) - sum(len(item.rows) for item in encodes)
        if old > 1 and chance.random() < 0.5:  # copies cross each other, and are made at once
            targets = chance.sample(range(old), chance.randint(1, min(old, 4)))
            before = list(positions)
            for target in targets:
                source_row = chance.randrange(old)
                copies.append(RowCopy(source_row, target, 0, before[source_row]))
                positions[target] = before[source_row]
        if not positions:
            continue
        token_ids = generator.integers(0, bundle.config.vocab_size, len(positions))
        plan = StepPlan(
            copies, encodes, token_ids, np.array(positions, np.int32),
            top_k=chance.choice([None, 1, 2, 16, 256]),
        )  # fmt: skip
        both(runners, plan)
        positions = [position + 1 for position in positions]
        while positions and (max(positions) >= 60 or chance.random() < 0.2):
            positions.pop()  # the last row leaves
    assert positions is not None


@pytest.mark.parametrize("max_copied", [1, 2**12, 2**26])
def test_rows_that_change_places_do_so_at_once(
    runners: tuple[DeviceRunner, OnnxRunner],
    bundle: Bundle,
    monkeypatch: pytest.MonkeyPatch,
    max_copied: int,
) -> None:
    """Rows move in a cycle, for any number of bytes copied at a time."""
    monkeypatch.setattr(device_caches, "MAX_COPIED", max_copied)
    sources = random_sources(bundle.config, 5, seed=3, max_length=30)
    both(runners, first_plan(sources))
    for position in range(1, 9):
        both(runners, StepPlan((), (), np.arange(5) + 7, np.full(5, position, np.int32)))
    lengths = (9, 4, 9, 0, 7)
    cycle = [
        RowCopy(row, (row + 1) % 5, min(2, length), length, cross=row < 3)
        for row, length in enumerate(lengths)
    ]
    for position in range(9, 12):
        both(runners, StepPlan(cycle, (), np.arange(5) + 7, np.full(5, position, np.int32)))
        cycle = []


def test_adjustments_and_their_end(
    runners: tuple[DeviceRunner, OnnxRunner], bundle: Bundle
) -> None:
    sources = random_sources(bundle.config, 3, seed=5)
    free = both(runners, first_plan(sources, top_k=1))
    forbidden = free.top_ids[:, 0].copy()
    adjusted = both(
        runners,
        StepPlan(
            (), (), *start(3),
            Adjustments(np.arange(3), forbidden, np.full(3, -np.inf, np.float32)), top_k=1,
        ),
    )  # fmt: skip
    assert (adjusted.top_ids[:, 0] != forbidden).all()
    again = both(runners, StepPlan((), (), *start(3), top_k=1))
    assert same(free, again)


def test_a_chained_row_goes_on_with_its_own_best_token(
    runners: tuple[DeviceRunner, OnnxRunner], bundle: Bundle
) -> None:
    """Steps submitted before the first answer equal those of a host that reads every answer."""
    device, plain = runners
    sources = random_sources(bundle.config, 6, seed=8)
    expected = greedy_steps(plain, sources, 12)
    futures: list[Future[StepOutput]] = [device.submit(first_plan(sources, top_k=8))]
    chained = np.ones(6, np.bool_)
    for step in range(1, 12):
        positions = np.full(6, step, np.int32)
        plan = StepPlan((), (), np.full(6, -7), positions, top_k=8, chained=chained)
        futures.append(device.submit(plan))
    going = set(range(6))
    for future, wanted in zip(futures, expected, strict=True):
        # The other runner's own number of candidates is 8, too.
        assert all(rows_equal(future.result(), row, wanted, row) for row in going)
        going -= {row for row in going if wanted.top_ids[row, 0] == bundle.config.eos_id}


def test_a_new_request_joins_chained_rows(
    runners: tuple[DeviceRunner, OnnxRunner], bundle: Bundle
) -> None:
    device, plain = runners
    first, second = random_sources(bundle.config, 2, seed=3)
    expected: list[StepOutput] = []
    futures: list[Future[StepOutput]] = []
    for step in range(4):
        joins = {0: [EncodeItem((0,), first)], 2: [EncodeItem((1,), second)]}.get(step, [])
        positions = np.array([step] if step < 2 else [step, step - 2], np.int32)
        chained = positions > 0
        token_ids = np.full(len(positions), 2, np.int64)
        futures.append(
            device.submit(StepPlan((), joins, token_ids, positions, top_k=8, chained=chained))
        )
        if step:
            best = expected[-1].top_ids[:, 0]
            token_ids[: len(best)][chained[: len(best)]] = best[chained[: len(best)]]
        expected.append(plain.execute(StepPlan((), joins, token_ids, positions, top_k=8)))
    assert all(same(future.result(), one) for future, one in zip(futures, expected, strict=True))


def test_rows_that_go_on_cost_the_host_nothing(
    runners: tuple[DeviceRunner, OnnxRunner], bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, _ = runners
    sent: list[list[int]] = []
    caches = device._model._caches
    set_rows = caches.set_rows

    def count(rows: np.ndarray, values: np.ndarray, staging: Staging) -> None:
        sent.append(rows.tolist())
        set_rows(rows, values, staging)

    monkeypatch.setattr(caches, "set_rows", count)
    device.execute(first_plan(random_sources(bundle.config, 6, seed=4)))
    sent.clear()

    def go_on(count: int) -> StepPlan:
        return StepPlan(
            (), (), np.zeros(count, np.int64), np.zeros(count, np.int32),
            chained=np.ones(count, np.bool_),
        )  # fmt: skip

    for _ in range(3):
        device.execute(go_on(6))
    assert sent == []
    device.execute(go_on(5))  # the last has left: it must not step on
    assert [row for rows in sent for row in rows] == [5]
    device.execute(go_on(5))
    assert len(sent) == 1


def test_a_row_without_a_place_left_writes_into_nobodys(tmp_path: Path) -> None:
    """The host may learn late that a row has reached its length; until then, it is chained."""
    bundle = with_limits(tiny_bundle(tmp_path / "bundle", resident=True), max_target_positions=8)
    device = DeviceRunner(bundle, CPU, DeviceOptions(max_rows=4), stream=open_on)
    plain = OnnxRunner(bundle, max_rows=4, intra_op_threads=1)
    # Neighbours in memory: what the first wrote behind its last place would be the second's first.
    sources = random_sources(bundle.config, 2, seed=21)
    late = [EncodeItem((1,), sources[1])]
    device.execute(first_plan(sources[:1]))
    chained = np.ones(1, np.bool_)
    for _ in range(5):
        device.execute(StepPlan((), (), *start(1), chained=chained))
    found = [device.execute(StepPlan((), late, *start(2), chained=np.array([True, False])))]
    for _ in range(5):  # the first has two places more
        found.append(device.execute(StepPlan((), (), *start(2), chained=np.ones(2, np.bool_))))
    expected = greedy_steps(plain, [sources[1]], 6)
    for one, other in zip(found, expected, strict=True):
        assert rows_equal(one, 1, other, 0)
        if other.top_ids[0, 0] == bundle.config.eos_id:
            break
    device.close()


def test_a_plan_that_fails_fails_alone(
    runners: tuple[DeviceRunner, OnnxRunner], bundle: Bundle
) -> None:
    """Afterwards, the state of the device counts as unknown."""
    device, _ = runners
    sources = random_sources(bundle.config, 4, seed=6)
    before = greedy_steps(device, sources, 6)
    wrong = StepPlan((), [EncodeItem((0,), (10**9, 3))], *start(4))  # no such token
    failed = device.submit(wrong)
    with pytest.raises(Exception, match=r"1000000000"):
        failed.result()
    assert same_steps(before, greedy_steps(device, sources, 6))


def test_both_are_runners(runners: tuple[DeviceRunner, OnnxRunner]) -> None:
    device, plain = runners
    runner: ModelRunner = device
    assert isinstance(runner, AsyncRunner)
    assert not isinstance(plain, AsyncRunner)
    assert device.limits == dataclasses.replace(plain.limits, max_paused_rows=0)
    assert device.depth == 2
    assert device.buckets.largest == 32  # with room for rows that nobody uses
    assert device.num_captures == 0  # there is no GPU
    assert device.arena_bytes == 0
    no_rows = device.execute(StepPlan((), (), *NO_ROWS))
    assert no_rows.top_ids.shape == (0, device.limits.top_k)

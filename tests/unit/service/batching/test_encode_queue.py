"""When an encode begins, and with how many sources."""

from __future__ import annotations

import pytest

from service.batching.encode_queue import EncodeQueue
from service.batching.fair_queue import FairQueue
from service.batching.records import RequestEntry
from service.batching.scheduler import Scheduler
from service.domain.plan import RunnerLimits
from service.domain.requests import SearchOptions
from tests.fake_runner import encoded_source
from tests.searches import search

MAX_ROWS = 64


def queue_of(num_sources: int, beam_size: int = 1) -> EncodeQueue:
    waiting = FairQueue()
    queue = EncodeQueue(waiting, token_budget=512, max_rows=MAX_ROWS)
    queue.is_bypassed = False
    for _ in range(num_sources):
        waiting.push(RequestEntry(search([10], SearchOptions(beam_size=beam_size))))
    return queue


def finish(queue: EncodeQueue, batch: list[RequestEntry]) -> None:
    queue.end([encoded_source(entry.request.source_ids) for entry in batch])


@pytest.mark.parametrize("num_running", [0, 1, 15])
def test_with_few_rows_a_source_does_not_wait(num_running: int) -> None:
    assert len(queue_of(1).begin(num_running)) == 1


@pytest.mark.parametrize(("num_sources", "begins"), [(1, False), (7, False), (8, True), (9, True)])
def test_with_more_rows_an_encode_gathers_eight_sources(num_sources: int, begins: bool) -> None:
    assert len(queue_of(num_sources).begin(16)) == (num_sources if begins else 0)


def test_an_encode_waits_for_two_steps_at_most() -> None:
    queue = queue_of(3)
    queue.stepped(16)
    assert not queue.can_begin(16)
    queue.stepped(16)
    assert len(queue.begin(16)) == 3


def test_each_encode_waits_anew_and_steps_during_one_do_not_count() -> None:
    queue = queue_of(8, beam_size=4)
    batch = queue.begin(48)  # six of them fit
    assert len(batch) == 6
    queue.stepped(48)
    queue.stepped(48)
    finish(queue, batch)
    for _ in batch:
        queue.take()
    assert not queue.can_begin(48)


def test_steps_without_free_rows_do_not_count() -> None:
    queue = queue_of(20)
    full = MAX_ROWS + MAX_ROWS // 8
    queue.stepped(full)
    queue.stepped(full)
    assert not queue.can_begin(full)
    assert not queue.can_begin(full - 7)
    assert len(queue.begin(full - 8)) == 8


def test_a_second_encode_may_wait_for_the_first_if_it_is_full() -> None:
    waiting = FairQueue()
    queue = EncodeQueue(waiting, token_budget=16, max_rows=MAX_ROWS, max_batches=2)
    queue.is_bypassed = False
    for _ in range(24):
        waiting.push(RequestEntry(search([10])))  # two tokens each
    first, second = queue.begin(0), queue.begin(0)
    assert len(first) == len(second) == 8
    assert not queue.begin(0), "two are in flight"
    finish(queue, first)
    assert [queue.take() for _ in first] == first
    assert queue.peek() is None
    assert queue.is_encoding
    queue.begin(0)
    waiting.push(RequestEntry(search([10])))
    finish(queue, second)
    assert queue.peek() is second[0]
    assert not queue.begin(0), "one source waits for more"


@pytest.mark.parametrize(("num_lanes", "num_encoded"), [(1, 9), (2, 20)])
def test_an_encode_for_a_single_lane_is_short(num_lanes: int, num_encoded: int) -> None:
    limits = RunnerLimits(MAX_ROWS, 512, 512, top_k=1, vocab_size=100)
    options = {"bos_id": 2, "eos_id": 3, "encode_token_budget": 400}
    scheduler = Scheduler([limits] * num_lanes, **options, encodes_ahead=True)
    scheduler.add([search([10] * 19) for _ in range(40)])  # 20 tokens each
    assert len(scheduler.to_encode()) == num_encoded

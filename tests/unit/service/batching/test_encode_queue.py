"""When an encode begins, and with how many sources."""

from __future__ import annotations

import pytest

from service.batching.encode_queue import EncodeQueue
from service.batching.records import RequestEntry
from service.batching.row_queue import RowQueue
from service.batching.scheduler import Scheduler
from service.domain.plan import RunnerLimits
from service.domain.requests import SearchOptions
from tests.fake_runner import encoded_source
from tests.searches import search

MAX_ROWS = 64


class Queue(EncodeQueue):
    """A queue with rows that are in use, and translations that wait."""

    def __init__(
        self, num_running: int, num_sources: int, beam_size: int = 1, **options: int
    ) -> None:
        self.rows = RowQueue(MAX_ROWS)
        super().__init__(self.rows, **{"token_budget": 512, "max_rows": MAX_ROWS} | options)
        self.is_bypassed = False
        self.push(num_running)
        self.running = [self.rows.take() for _ in range(num_running)]
        self.push(num_sources, beam_size)

    def push(self, count: int, beam_size: int = 1) -> None:
        """Add translations of two tokens."""
        for _ in range(count):
            self.rows.push(RequestEntry(search([10], SearchOptions(beam_size=beam_size))))

    def join(self, count: int) -> list[RequestEntry]:
        """Let translations join."""
        joined = []
        for _ in range(count):
            entry = self.peek(lambda _: True)
            assert entry is not None
            self.take(entry)
            joined.append(entry)
        return joined


def finish(queue: EncodeQueue, batch: list[RequestEntry]) -> None:
    queue.end([encoded_source(entry.request.source_ids) for entry in batch])


@pytest.mark.parametrize("num_running", [0, 1, 15])
def test_with_few_rows_a_source_does_not_wait(num_running: int) -> None:
    assert len(Queue(num_running, 1).begin()) == 1


@pytest.mark.parametrize(("num_sources", "begins"), [(1, False), (7, False), (8, True), (9, True)])
def test_with_more_rows_an_encode_gathers_eight_sources(num_sources: int, begins: bool) -> None:
    assert len(Queue(16, num_sources).begin()) == (num_sources if begins else 0)


def test_an_encode_waits_for_two_steps_at_most() -> None:
    queue = Queue(16, 3)
    queue.stepped()
    assert not queue.can_begin()
    queue.stepped()
    assert len(queue.begin()) == 3


def test_each_encode_waits_anew_and_steps_during_one_do_not_count() -> None:
    queue = Queue(48, 8, beam_size=4)
    batch = queue.begin()  # six of them fit
    assert len(batch) == 6
    queue.stepped()
    queue.stepped()
    finish(queue, batch)
    queue.join(len(batch))
    assert not queue.can_begin()


def test_steps_without_free_rows_do_not_count() -> None:
    full = MAX_ROWS + MAX_ROWS // 8
    queue = Queue(full, 20)
    queue.stepped()
    queue.stepped()
    assert not queue.can_begin()
    for entry in queue.running[:7]:
        queue.rows.release(entry)
    assert not queue.can_begin()
    queue.rows.release(queue.running[7])
    assert len(queue.begin()) == 8


def test_a_second_encode_may_wait_for_the_first_if_it_is_full() -> None:
    queue = Queue(0, 24, token_budget=16, max_batches=2)
    first, second = queue.begin(), queue.begin()
    assert len(first) == len(second) == 8
    assert not queue.begin(), "two are in flight"
    finish(queue, first)
    assert queue.join(len(first)) == first
    assert queue.peek(lambda _: True) is None
    assert queue.is_encoding
    queue.begin()
    queue.push(1)
    finish(queue, second)
    assert queue.peek(lambda _: True) is second[0]
    assert not queue.begin(), "one source waits for more"


@pytest.mark.parametrize(("num_lanes", "num_encoded"), [(1, 9), (2, 20)])
def test_an_encode_for_a_single_lane_is_short(num_lanes: int, num_encoded: int) -> None:
    limits = RunnerLimits(MAX_ROWS, 512, 512, top_k=1, vocab_size=100)
    options = {"bos_id": 2, "eos_id": 3, "encode_token_budget": 400}
    scheduler = Scheduler([limits] * num_lanes, **options, encodes_ahead=True)
    scheduler.add([search([10] * 19) for _ in range(40)])  # 20 tokens each
    assert len(scheduler.to_encode()) == num_encoded

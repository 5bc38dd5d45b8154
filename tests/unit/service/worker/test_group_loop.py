"""Several processes as one step loop: one queue, the least loaded process, merged events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from service.batching.config import EngineConfig
from service.batching.events import Events, Iteration, Listener
from service.batching.records import EngineRequest, Finished, RequestEntry
from service.domain.requests import FinishReason, ScoringRequest, SearchOptions
from service.errors import DragomanError, RequestCancelledError, UnavailableError
from service.worker.group_loop import GroupLoop
from tests.process_models import LIMITS
from tests.searches import search, submitted

ERROR = RequestCancelledError("cancelled")
ROOM = LIMITS.max_rows + 1  # a request more than rows is encoded ahead


class FakeProcess:
    """A process that records its commands, and reports what the test tells it to."""

    def __init__(self) -> None:
        self.limits = LIMITS
        self.held: dict[int, EngineRequest] = {}
        self.commands: list[tuple[Any, ...]] = []
        self.failure: DragomanError | None = None

    def steps(self, config: EngineConfig, listener: Listener) -> FakeProcess:
        self._listener = listener
        return self

    def start(self) -> None:
        self.commands.append(("start",))

    def add(self, requests: Sequence[EngineRequest]) -> None:
        self.held |= {request.id: request for request in requests}

    def stream(self, request_id: int) -> None:
        assert request_id in self.held, "streamed before it was added"
        self.commands.append(("stream", request_id))

    def cancel(self, request_id: int, error: DragomanError) -> None:
        self.commands.append(("cancel", request_id, error))

    async def prepare_scoring(self, graph: str) -> None:
        self.commands.append(("prepare", graph))
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        self.commands.append(("stop",))

    def join(self) -> None:
        self.commands.append(("join",))

    def abandon(self) -> None:
        self.commands.append(("abandon",))

    def step(self, *ended: int, rows: int = 1, waiting: int = 0) -> None:
        """Report a step after which these requests have ended."""
        finished = [Finished(i, RequestEntry(self.held.pop(i)).finish(1.0).result) for i in ended]
        running = len(self.held) - waiting
        self._listener.on_events(Events([], finished, [Iteration(waiting, running, rows)]))

    def end(self, *, failed: bool) -> None:
        self._listener.on_end(failed)


class Group:
    """A group of fake processes, and its events."""

    def __init__(self, count: int = 2) -> None:
        self.processes = [FakeProcess() for _ in range(count)]
        self.events: list[Events] = []
        self.ends: list[bool] = []
        self.now = 0.0
        self.loop = GroupLoop(self.processes, EngineConfig(), self, lambda: self.now)
        self.loop.start()

    def on_events(self, events: Events) -> None:
        self.events.append(events)

    def on_end(self, failed: bool) -> None:
        self.ends.append(failed)

    @property
    def held(self) -> list[int]:
        """The number of requests in each process."""
        return [len(process.held) for process in self.processes]

    def add(self, count: int, client: str = "", beam_size: int = 1) -> list[EngineRequest]:
        options = SearchOptions(beam_size=beam_size)
        requests = [search((10, 11), options, client=client) for _ in range(count)]
        self.loop.add(requests)
        return requests

    def holder(self, request: EngineRequest) -> FakeProcess:
        (one,) = (process for process in self.processes if request.id in process.held)
        return one


@pytest.fixture
def group() -> Group:
    return Group()


def test_each_request_goes_to_the_process_with_the_fewest_rows(group: Group) -> None:
    (beam,) = group.add(1, beam_size=3)
    group.add(3)
    assert list(group.holder(beam).held) == [beam.id]
    assert sorted(group.held) == [1, 3]


def test_what_no_process_has_room_for_waits_for_the_first_that_has(group: Group) -> None:
    requests = group.add(2 * ROOM + 3)
    assert group.held == [ROOM, ROOM]
    process = group.processes[1]
    ended = list(process.held)[:2]
    process.step(*ended)
    assert group.held == [ROOM, ROOM]
    assert {requests[-2].id, requests[-3].id} <= process.held.keys()
    assert [one.id for one in group.events[-1].finished] == ended


def test_a_beam_waits_until_one_process_has_room_for_all_its_rows(group: Group) -> None:
    requests = group.add(2 * ROOM)
    (beam,) = group.add(1, beam_size=4)
    for process in group.processes:  # two rows each are free, together four
        process.step(*list(process.held)[:2])
    assert beam.id not in {i for process in group.processes for i in process.held}
    holder = group.holder(requests[-1])
    holder.step(*list(holder.held)[:2])
    assert group.holder(beam) is holder


def test_a_client_with_one_sentence_does_not_wait_for_a_thousand_of_another(group: Group) -> None:
    group.add(1000, client="many")
    (single,) = group.add(1, client="single")
    # "many" is beyond its share of the rows, so it gets no further ones.
    for process in group.processes:
        while len(process.held) > LIMITS.max_rows and single.id not in process.held:
            process.step(next(iter(process.held)))
    assert single.id in group.holder(single).held


def test_two_clients_have_equal_shares_of_all_processes(group: Group) -> None:
    group.add(300, client="a")
    group.add(100, client="b")
    ended = {"a": 0, "b": 0}
    for turn in range(120):
        process = group.processes[turn % 2]
        first = next(iter(process.held.values()))
        process.step(first.id)
        ended[first.request.client] += turn >= 20  # "a" was alone at the beginning
    assert abs(ended["a"] - ended["b"]) <= 12


def test_a_cancel_goes_to_the_process_of_its_request(group: Group) -> None:
    requests = group.add(2)
    for request in requests:
        group.loop.cancel(request.id, ERROR)
        assert group.holder(request).commands[-1] == ("cancel", request.id, ERROR)
    assert not group.events


def test_a_request_that_waits_is_cancelled_at_once(group: Group) -> None:
    requests = group.add(2 * ROOM + 2)
    group.loop.cancel(requests[-1].id, ERROR)
    (finished,) = group.events[-1].finished
    assert (finished.id, finished.result.error) == (requests[-1].id, ERROR)
    assert finished.result.finish_reason is FinishReason.CANCELLED
    assert not group.events[-1].is_progress
    group.loop.cancel(requests[-1].id, ERROR)
    assert len(group.events) == 1


def test_a_request_that_waits_ends_at_its_deadline(group: Group) -> None:
    group.add(2 * ROOM)
    late = search((10, 11), deadline=5.0)
    group.loop.add([late])
    process = group.processes[0]
    group.now = 4.0
    process.step()
    assert not any(events.finished for events in group.events)
    group.now = 5.0
    process.step()
    (finished,) = group.events[-1].finished
    assert (finished.id, finished.result.finish_reason) == (late.id, FinishReason.DEADLINE)


def test_a_stream_begins_wherever_its_request_is(group: Group) -> None:
    requests = group.add(2 * ROOM + 1)
    group.loop.stream(requests[0].id)
    group.loop.stream(requests[-1].id)
    assert group.holder(requests[0]).commands[-1] == ("stream", requests[0].id)
    process = group.processes[0]
    process.step(requests[0].id)
    assert process.commands[-1] == ("stream", requests[-1].id)


def test_events_have_the_rows_and_the_queue_of_all(group: Group) -> None:
    group.add(2 * ROOM + 3)
    first, second = group.processes
    first.step(rows=4, waiting=1)
    second.step(rows=3, waiting=1)
    (iteration,) = group.events[-1].iterations
    assert (iteration.num_waiting, iteration.num_running) == (5, 8)
    assert (iteration.num_rows, iteration.num_stepping) == (3, 7)


def test_a_process_that_hangs_is_not_hidden_by_the_others(group: Group) -> None:
    group.add(4)
    first, second = group.processes
    first.step()
    second.step()
    assert any(events.is_progress for events in group.events)
    first.step()
    group.events.clear()
    for _ in range(10):
        first.step()
    assert not any(events.is_progress for events in group.events)
    second.step()
    assert group.events[-1].is_progress


def test_a_process_without_work_does_not_count_as_hanging(group: Group) -> None:
    group.add(4)
    first, second = group.processes
    second.step()
    second.step(*second.held)
    for _ in range(3):
        group.events.clear()
        first.step()
        first.step()
        assert any(events.is_progress for events in group.events)


def test_scores_have_a_queue_of_their_own(group: Group) -> None:
    group.add(2 * ROOM + 1)
    scores = [submitted(ScoringRequest((10, 11), target_ids=(12,))) for _ in range(2)]
    group.loop.add(scores)
    assert group.holder(scores[0]) is not group.holder(scores[1])


def test_scores_beyond_two_budgets_of_a_process_wait(group: Group) -> None:
    long = ScoringRequest(tuple(range(10, 610)), target_ids=(12,))
    scores = [submitted(long) for _ in range(5)]
    group.loop.add(scores)
    assert group.held == [1, 1]
    for _ in range(3):
        process = max(group.processes, key=lambda one: len(one.held))
        process.step(*process.held)
        assert group.held == [1, 1]


async def test_graphs_for_scores_are_loaded_in_all_processes(group: Group) -> None:
    await group.loop.prepare_scoring("scoring")
    assert [process.commands[-1] for process in group.processes] == [("prepare", "scoring")] * 2
    group.processes[1].failure = UnavailableError("no")
    with pytest.raises(UnavailableError):
        await asyncio.wait_for(group.loop.prepare_scoring("scoring"), 60)


@pytest.mark.parametrize("is_stopping", [False, True])
def test_the_death_of_one_process_ends_all_once(group: Group, is_stopping: bool) -> None:
    group.add(2 * ROOM + 1)
    if is_stopping:
        group.loop.stop()
    dead, other = group.processes
    dead.end(failed=True)
    assert group.ends == [True]
    assert other.commands[-1] == ("abandon",)
    other.step(*other.held)
    other.end(failed=True)
    assert group.ends == [True]
    assert not group.events


def test_it_has_ended_when_all_have(group: Group) -> None:
    group.loop.stop()
    assert all(process.commands[-1] == ("stop",) for process in group.processes)
    for process in group.processes:
        assert not group.ends
        process.end(failed=False)
    assert group.ends == [False]
    group.loop.join()
    assert all(process.commands[-1] == ("join",) for process in group.processes)

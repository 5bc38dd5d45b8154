"""The admission controller with a scheduler: its record of it is correct at every moment."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from service.batching.events import Iteration
from service.batching.records import EngineRequest, Finished
from service.domain.requests import Priority, SearchOptions
from service.engine.admission import AdmissionController, Refusal
from service.errors import (
    DeadlineExceededError,
    DragomanError,
    RequestCancelledError,
    ResourceExhaustedError,
)
from tests.searches import moody_runner, search


class AdmissionMachine(RuleBasedStateMachine):
    """Calls of many clients arrive, are admitted or refused, run, expire and are cancelled."""

    max_rows = 5
    max_waiting = 24
    beam_sizes = (1, 1, 2, 5)
    max_new_tokens = 24

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, EngineRequest] = {}  # in the order in which they came

    @initialize(max_queue_seconds=st.sampled_from([None, 1.0, 20.0, float("inf")]))
    def start(self, max_queue_seconds: float | None) -> None:
        self.now = 0.0
        self.refusals: list[Refusal] = []
        self.limit = max_queue_seconds
        self.admission = AdmissionController(
            self.max_rows,
            self.max_waiting,
            max_queue_seconds,
            lambda: self.now,
            on_refused=self.refusals.append,
        )
        self.scheduler, self.runner = moody_runner(
            self.max_rows, vocab_size=max(24, 2 * self.max_rows)
        )
        self.num_refused = 0

    @rule(
        source=st.lists(st.integers(10, 20), max_size=6),
        width=st.integers(0, 3),
        patience=st.none() | st.floats(-1.0, 30.0),
        client=st.sampled_from("abcdef"),
        client_id=st.sampled_from(["", "one", "two"]),
        priority=st.sampled_from(list(Priority)),
    )
    def arrive(
        self,
        source: list[int],
        width: int,
        patience: float | None,
        client: str,
        client_id: str,
        priority: Priority,
    ) -> None:
        deadline = None if patience is None else self.now + patience
        job = search(
            source,
            SearchOptions(beam_size=self.beam_sizes[width]),
            self.max_new_tokens,
            now=self.now,
            deadline=deadline,
            client=client,
            client_id=client_id,
            priority=priority,
        )
        before = self.admission.num_taken
        wait = self.admission.wait_seconds(job.request)
        assert wait >= 0.0
        if (refused := self.refusal(job)) is not None:
            self.num_refused += 1
            assert self.admission.num_taken == before, "a refused call holds quota"
            assert len(self.refusals) == self.num_refused
            too_late = deadline is not None and deadline <= self.now
            assert before > 0 or too_late, "refused by an empty engine"
            if isinstance(refused, ResourceExhaustedError):
                assert 0.1 <= refused.retry_after_seconds <= 60.0
            else:
                assert patience is not None
            return
        assert self.limit is None or wait <= self.limit
        assert self.admission.num_taken == before + job.request.num_rows
        assert deadline is None or deadline > self.now
        self.alive[job.id] = job
        self.admission.submitted(job)
        self.scheduler.add([job])

    def refusal(self, job: EngineRequest) -> DragomanError | None:
        try:
            self.admission.enter(job.request)
        except (ResourceExhaustedError, DeadlineExceededError) as error:
            return error
        return None

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(list(self.alive)))
        self.end(self.scheduler.cancel(number, RequestCancelledError("no more"), self.now))

    @rule(seconds=st.floats(0.0, 30.0))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(
        times=st.integers(1, 30),
        a_step=st.sampled_from([0.01, 0.1, 1.0]),
        a_row=st.sampled_from([0.0, 0.01, 0.1]),
    )
    def iterate(self, times: int, a_step: float, a_row: float) -> None:
        for _ in range(times):
            schedule = self.scheduler.schedule(self.now)
            ended = list(schedule.dropped)
            num_rows, seconds = 0, 0.0
            if schedule.plan is not None:
                num_rows = schedule.plan.num_rows
                seconds = a_step + a_row * num_rows
                self.now += seconds
                output = self.runner.execute(schedule.plan)
                ended += self.scheduler.update(output, self.now).finished
            # As in the engine: answers first.
            self.end(ended)
            admitted = [entry.id for entry in schedule.admitted]
            self.admission.iterated(
                [Iteration(0, 0, num_rows=num_rows, seconds=seconds, admitted=admitted)]
            )

    def end(self, all_finished: list[Finished]) -> None:
        for finished in all_finished:
            request = self.alive.pop(finished.id).request
            self.admission.answered(request, finished.result)
            self.admission.ended(finished.id)
            self.admission._quota.release(request.num_rows, request.client, request.client_id)

    @invariant()
    def it_knows_who_is_inside(self) -> None:
        if not hasattr(self, "admission"):
            return
        queue, quota = self.admission._queue, self.admission._quota
        inside = sum(job.request.num_rows for job in self.alive.values())
        assert queue.num_rows_inside == quota.num_taken == inside <= quota.capacity
        assert queue.num_rows_running == self.scheduler.num_running
        assert queue.num_waiting == self.scheduler.num_waiting
        requests = [job.request for job in self.alive.values()]
        clients = {request.client for request in requests}
        assert quota.num_clients == len(clients)
        for client in clients:
            rows = sum(one.num_rows for one in requests if one.client == client)
            assert quota.held_by(client) == rows
            named = [one for one in requests if one.client == client and one.client_id]
            assert quota.num_ids(client) == len({one.client_id for one in named})
            for client_id in ("one", "two", "new"):
                rows = sum(one.num_rows for one in named if one.client_id == client_id)
                assert quota.held_by_id(client, client_id) == rows
                for priority in Priority:
                    one = search([], client=client, client_id=client_id, priority=priority).request
                    assert 0.0 <= queue.ahead(one) <= queue.total + 1e-6
        if not queue.num_waiting:
            assert queue.total == 0.0


class WideAdmissionMachine(AdmissionMachine):
    """The same with beams as wide as the engine, and a short queue."""

    max_rows = 64
    max_waiting = 5
    beam_sizes = (1, 8, 57, 64)
    max_new_tokens = 5


AdmissionMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestAdmission = pytest.mark.timeout(300)(AdmissionMachine.TestCase)
WideAdmissionMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=25)
TestWideAdmission = pytest.mark.timeout(300)(WideAdmissionMachine.TestCase)

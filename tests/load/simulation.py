"""An engine in virtual time: real admission control and scheduler, and a model that costs seconds.

One thread does the work of `service.engine.engine` and `service.batching.step_loop`, call by call,
so that minutes of load take seconds and give the same figures on every machine.
"""

from __future__ import annotations

import csv
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import bench.suite
from service.batching.events import Iteration
from service.batching.records import EngineRequest, Finished
from service.batching.scheduler import Scheduler
from service.domain.plan import RunnerLimits
from service.domain.requests import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Priority,
    SearchOptions,
)
from service.engine.admission import AdmissionController
from service.errors import DragomanError
from tests.fake_runner import FakeRunner
from tests.searches import submitted

_LENGTHS = Path(bench.suite.__file__).parent / "lengths.csv"
_FIRST_ID, EOS = 10, 3
MAX_TARGET = 400


@dataclass(frozen=True)
class Cost:
    """The cost of an iteration, in seconds.

    Attributes:
        step, row: coefficients of a step's duration: n rows take step + n * row.
        source_token: time to encode a token.
        call: time to receive a call and to answer or refuse it, on the cores of the steps.
    """

    step: float
    row: float
    source_token: float = 0.0
    call: float = 0.0

    def capacity(self, max_rows: int, lengths: Sequence[tuple[int, int]]) -> float:
        """The number of sequences of these lengths that the widest batch answers in a second."""
        source, target = np.mean(lengths, axis=0)
        a_sequence = target * (self.step + max_rows * self.row) / max_rows
        return float(1.0 / (a_sequence + source * self.source_token + self.call))


# A Transformer base in int8 on two cores, and a small model.
BASE = Cost(step=1.0e-3, row=0.163e-3, source_token=0.06e-3)
SMALL = Cost(step=0.2e-3, row=0.013e-3, source_token=0.005e-3)


@dataclass(eq=False)
class Arrival:
    """One text to translate.

    Attributes:
        at: time of arrival, in seconds.
        source, target: number of tokens of the text and of its translation.
        seconds: latency, after the answer.
        refused: error in place of an answer.
        would_refuse: the error of a refusal, in a simulation that admits refused requests.
    """

    at: float
    source: int
    target: int
    client: str = ""
    patience: float | None = None
    options: SearchOptions = field(default_factory=SearchOptions)
    priority: Priority = Priority.NORMAL
    seconds: float | None = None
    result: GenerationResult | None = None
    refused: DragomanError | None = None
    would_refuse: DragomanError | None = None
    job: EngineRequest | None = None

    @property
    def in_time(self) -> bool:
        """Whether it got its whole answer."""
        reasons = (FinishReason.EOS, FinishReason.LENGTH)
        return self.result is not None and self.result.finish_reason in reasons


def real_lengths() -> list[tuple[int, int]]:
    """Tokens of real sentence pairs."""
    with _LENGTHS.open() as file:
        return [
            (int(row["source_tokens"]), int(row["target_tokens"])) for row in csv.DictReader(file)
        ]


def poisson(
    rate: float, seconds: float, *, seed: int = 0, start: float = 0.0, client: str = ""
) -> list[Arrival]:
    """Arrivals of real lengths at random times."""
    rng = np.random.default_rng(seed)
    lengths = real_lengths()
    arrivals, at = [], start
    while (at := at + rng.exponential(1 / rate)) < start + seconds:
        source, target = lengths[rng.integers(len(lengths))]
        arrivals.append(Arrival(at, source, min(target, MAX_TARGET), client))
    return arrivals


class Simulation:
    """Serves arrivals.

    Args:
        cost: cost of the model's iterations.
        max_rows, max_waiting, max_queue_seconds: limits of the engine.
        lets_in: fraction of refused requests that is admitted anyway.
    """

    def __init__(
        self,
        cost: Cost,
        max_rows: int = 64,
        *,
        max_waiting: int = 4096,
        max_queue_seconds: float | None = None,
        lets_in: float = 0.0,
    ) -> None:
        self.cost = cost
        self.now = 0.0
        self.admission = AdmissionController(
            max_rows, max_waiting, max_queue_seconds, lambda: self.now
        )
        limits = RunnerLimits(max_rows, 512, MAX_TARGET, 2, 512)
        self.runner = FakeRunner(limits, lambda source_ids: [5] * (source_ids[0] - _FIRST_ID))
        self.scheduler = Scheduler([limits], bos_id=2, eos_id=EOS, encode_token_budget=512)
        self.most_inside = 0
        self.wasted_tokens = 0
        self.steps: list[tuple[float, int, float]] = []  # end, rows, seconds of each
        self._lets_in = lets_in
        self._chance = np.random.default_rng(0)
        self._arrivals: dict[int, Arrival] = {}
        self._then: Callable[[Arrival], Arrival | None] = lambda _: None
        self._numbers = itertools.count()
        self._coming: list[tuple[float, int, Arrival]] = []  # a heap

    def serve(
        self,
        arrivals: Iterable[Arrival],
        then: Callable[[Arrival], Arrival | None] = lambda _: None,
    ) -> None:
        """Run until all arrivals are answered or refused.

        Args:
            arrivals: the first arrivals.
            then: returns the next arrival after one that was answered or refused.
        """
        self._then = then
        for arrival in arrivals:
            self._expect(arrival)
        seconds = 0.0  # of the last iteration
        while self._coming or not self.scheduler.is_idle:
            if self.scheduler.is_idle:
                self.now = max(self.now, self._coming[0][0])
            until = self.now + seconds  # calls get half of the time, the others wait
            while self._coming and self._coming[0][0] <= self.now:
                self._arrive(heapq.heappop(self._coming)[2])
                if self.cost.call and self.now >= until:
                    break
            started = self.now
            self._iterate()
            seconds = self.now - started

    def serve_closed(self, users: Sequence[Arrival], further: Sequence[Arrival]) -> None:
        """Like `serve`, but each further arrival comes when an earlier one has been answered."""
        remaining = list(further)

        def then(arrival: Arrival) -> Arrival | None:
            if arrival.result is None or not remaining:
                return None
            following = remaining.pop()
            following.at = self.now
            return following

        self.serve(users, then)

    def _expect(self, arrival: Arrival | None) -> None:
        if arrival is not None:
            heapq.heappush(self._coming, (arrival.at, next(self._numbers), arrival))

    def _arrive(self, arrival: Arrival) -> None:
        deadline = None if arrival.patience is None else arrival.at + arrival.patience
        request = GenerationRequest(
            # The last token but one of the script is the last that it says; then comes EOS.
            (_FIRST_ID + arrival.target - 1, *[_FIRST_ID] * (arrival.source - 2), EOS),
            arrival.options,
            deadline,
            client=arrival.client,
            priority=arrival.priority,
        )
        now = self.now + self.cost.call
        self.now = now if self.cost.call else arrival.at  # it came during the last step
        try:
            self.admission.enter(request)
        except DragomanError as error:
            if self._chance.random() >= self._lets_in:
                arrival.refused = error
                self._expect(self._then(arrival))
                return
            arrival.would_refuse = error
            assert self.admission._quota.take(request.num_rows, request.client)
        finally:
            self.now = now
        job = arrival.job = submitted(request, MAX_TARGET, arrival.at)
        self._arrivals[job.id] = arrival
        self.admission.submitted(job)
        self.scheduler.add([job])
        self.most_inside = max(self.most_inside, self.admission.num_taken)

    def _iterate(self) -> None:
        started = self.now
        schedule = self.scheduler.schedule(started)
        ended = list(schedule.dropped)
        num_rows = 0
        if schedule.plan is not None:
            plan = schedule.plan
            num_rows = plan.num_rows
            encoded = sum(len(item.source_ids) for item in plan.encodes)
            self.now += self.cost.step + num_rows * self.cost.row
            self.now += encoded * self.cost.source_token
            ended += self.scheduler.update(self.runner.execute(plan), self.now).finished
            self.runner.plans.clear()
            self.steps.append((self.now, num_rows, self.now - started))
        for finished in ended:
            self._end(finished)
        admitted = [entry.id for entry in schedule.admitted]
        self.admission.iterated(
            [Iteration(0, 0, num_rows=num_rows, seconds=self.now - started, admitted=admitted)]
        )

    def _end(self, finished: Finished) -> None:
        arrival = self._arrivals.pop(finished.id)
        assert arrival.job is not None
        request = arrival.job.request
        arrival.result = finished.result
        arrival.seconds = self.now - arrival.at
        self.admission.answered(request, finished.result)
        self.admission.ended(finished.id)
        self.admission._quota.release(request.num_rows, request.client)
        self._expect(self._then(arrival))
        if not arrival.in_time:
            self.wasted_tokens += len(finished.result.token_ids)


def percentile(arrivals: Iterable[Arrival], q: float) -> float:
    """A percentile of the latencies of answered arrivals; nan without any."""
    seconds = [arrival.seconds for arrival in arrivals if arrival.seconds is not None]
    return float(np.percentile(seconds, q)) if seconds else math.nan

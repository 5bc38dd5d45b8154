"""Simulation of a server with several model processes on a machine with more cores.

It is fed with times measured on one machine (`bench.engine.scale`). Calls have one sentence. Users
send the next call when the last one was answered. A call takes time of the server's process, waits
for the model process with the fewest rows, is encoded, steps with the other rows, and takes time of
the server's process again. Threads that are active share the cores; with more threads than cores,
all slow down alike. Memory bandwidth and caches, which cores share too, are not simulated.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_ROWS = 64  # of a process
_AHEAD = 8  # sources encoded beyond those
_GATHERED = 8  # most sources in an encode
_LOADED_ROWS, _GATHERING_STEPS = 16, 2
_WARMUP = 0.3  # part of the simulated time

SERVER, CORES, PROCESSES, USERS = "server process", "cores", "model processes", "number of users"


@dataclass(frozen=True)
class Costs:
    """Measured times in seconds, each on one thread.

    Attributes:
        step: duration of a step, by its number of rows.
        encode: duration of an encode, by its number of sources.
        parallel: share of a step that several threads can divide, from 0 to 1.
        python: time of a sentence in the model's process besides its graphs.
        server: time of a call in the server's process.
        client: time of a call in the load generator.
        steps: numbers of steps of typical sentences.
        num_lanes: number of lanes of a process with two threads.
    """

    step: Mapping[int, float]
    encode: Mapping[int, float]
    parallel: float
    python: float
    server: float
    client: float
    steps: Sequence[int]
    num_lanes: int = 1

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Costs:
        """The costs from plain JSON values, which have strings as keys."""
        tables = {
            name: {int(count): seconds for count, seconds in values[name].items()}
            for name in ("step", "encode")
        }
        return cls(**{**values, **tables})

    def times(self, factor: float) -> Costs:
        """The costs of a larger model: its graphs take `factor` times as long, in two lanes."""
        step = {rows: factor * seconds for rows, seconds in self.step.items()}
        encode = {count: factor * seconds for count, seconds in self.encode.items()}
        return dataclasses.replace(self, step=step, encode=encode, num_lanes=2)


@dataclass(frozen=True)
class Prediction:
    """The figures of a simulated server.

    Attributes:
        rate: answers a second.
        p50, p99: percentiles of the latency in seconds.
        busy: busy part of the server's process, of the cores and of the model processes' threads
            that step; 1 is a bottleneck. Threads that wait for others in the middle of an operator
            do not keep a core busy.
    """

    cores: int
    processes: int
    users: int
    rate: float
    p50: float
    p99: float
    busy: Mapping[str, float]

    @property
    def bottleneck(self) -> str:
        """The first resource that is busy for nine tenths of the time; the users if none is."""
        return next((name for name, busy in self.busy.items() if busy >= 0.9), USERS)


@dataclass
class _Worker:
    """A thread, or a group of threads that share an operator.

    Attributes:
        width: number of cores that it keeps busy.
        speed: speed relative to one thread.
        left: seconds of its work that are left; infinity while it is idle.
        busy_seconds: time in which it had work, also while it waited for a core.
        work_seconds: time of cores that it used.
    """

    width: int = 1
    speed: float = 1.0
    left: float = math.inf
    done: Callable[[], None] = lambda: None
    busy_seconds: float = 0.0
    work_seconds: float = 0.0

    @property
    def is_idle(self) -> bool:
        return self.left == math.inf

    def begin(self, seconds: float, done: Callable[[], None]) -> None:
        self.left, self.done = seconds, done


@dataclass
class _SimulatedCall:
    began: float
    steps: int


@dataclass
class _Lane:
    """Rows that step together."""

    worker: _Worker
    rows: list[_SimulatedCall] = field(default_factory=list)
    debt: float = 0.0  # Python code of the sentences that ended in its last step


def table(durations: Mapping[int, float]) -> list[float]:
    """Durations for all numbers of rows or sources, by linear interpolation."""
    found = np.interp(range(_ROWS + 1), list(durations), list(durations.values()))
    return [float(seconds) for seconds in found]


class _Process:
    """A model process: its lanes, and a thread for encodes if it has at least two threads."""

    def __init__(self, simulation: Simulation, threads: int) -> None:
        self._all = simulation
        # As `service.runtime.cpu.lane_count`: lanes need 32 rows for each thread.
        num_lanes, width = (simulation.costs.num_lanes, 1) if threads == 2 else (1, threads)
        self.lanes = [_Lane(simulation.worker(width)) for _ in range(num_lanes)]
        self._encoder = simulation.worker() if threads == 2 else None
        self.waiting: deque[_SimulatedCall] = deque()
        self._encoded: deque[_SimulatedCall] = deque()
        self.num_calls = 0
        self._num_steps = 0  # since the last encode began

    @property
    def has_room(self) -> bool:
        return self.num_calls < _ROWS + _AHEAD

    @property
    def _has_gathered(self) -> bool:
        """Whether enough sources wait for an encode, as in `service.batching.encode_queue`."""
        if len(self.waiting) >= _GATHERED:
            return True
        is_loaded = self.num_calls >= _LOADED_ROWS
        return len(self.waiting) > 0 and not (is_loaded and self._num_steps < _GATHERING_STEPS)

    def go_on(self) -> None:
        """Begin whatever can begin."""
        if self._encoder is not None and self._encoder.is_idle and self._has_gathered:
            self._num_steps = 0
            batch = [self.waiting.popleft() for _ in range(min(_GATHERED, len(self.waiting)))]
            seconds = self._all.encode_seconds[len(batch)]
            self._encoder.begin(seconds, lambda: self._encoded.extend(batch))
        for lane in sorted(self.lanes, key=lambda one: len(one.rows)):
            if lane.worker.is_idle:
                self._step(lane)

    def _step(self, lane: _Lane) -> None:
        seconds = lane.debt
        source = self.waiting if self._encoder is None else self._encoded
        share = math.ceil(
            (len(source) + sum(len(one.rows) for one in self.lanes)) / len(self.lanes)
        )
        joining = min(len(source), max(0, min(share, _ROWS // len(self.lanes)) - len(lane.rows)))
        if self._encoder is None:
            joining = min(joining, _GATHERED)
        lane.rows += [source.popleft() for _ in range(joining)]
        if not lane.rows:
            return
        graphs = self._all.step_seconds[len(lane.rows)]
        if self._encoder is None and joining:
            graphs += self._all.encode_seconds[joining]
        seconds += graphs / lane.worker.speed
        lane.debt = 0.0
        lane.worker.begin(seconds, lambda: self._stepped(lane))

    def _stepped(self, lane: _Lane) -> None:
        self._num_steps += 1
        for call in lane.rows:
            call.steps -= 1
        ended = [call for call in lane.rows if not call.steps]
        lane.rows = [call for call in lane.rows if call.steps]
        lane.debt = self._all.costs.python * len(ended)
        self.num_calls -= len(ended)
        for call in ended:
            self._all.serve(lambda call=call: self._all.answered(call))  # type: ignore[misc]


class Simulation:
    """One server under the load of some users. `run` gives the prediction.

    Args:
        costs: measured times.
        cores: number of cores.
        processes: number of model processes, which divide the cores among them.
        users: number of users.
        has_clients: whether the load generator runs on the same cores.
    """

    def __init__(
        self, costs: Costs, cores: int, processes: int, users: int, *, has_clients: bool = False
    ) -> None:
        self.costs = costs
        self._cores = cores
        self._users = users
        self._workers: list[_Worker] = []
        self._server, self._client = self.worker(), self.worker()
        self._jobs: deque[tuple[float, Callable[[], None]]] = deque()
        self._sends: deque[None] = deque()
        self._client_seconds = costs.client if has_clients else 0.0
        self._processes = [
            _Process(self, max(1, cores // processes + (n < cores % processes)))
            for n in range(processes)
        ]
        self._waiting: deque[_SimulatedCall] = deque()
        self.step_seconds, self.encode_seconds = table(costs.step), table(costs.encode)
        self._now = 0.0
        self._random = random.Random(1)
        self._answers: list[tuple[float, float]] = []

    def worker(self, width: int = 1) -> _Worker:
        """A new thread of the machine."""
        parallel = self.costs.parallel
        self._workers.append(_Worker(width, 1.0 / (1.0 - parallel + parallel / width)))
        return self._workers[-1]

    def serve(self, then: Callable[[], None]) -> None:
        """Let the server's process work on one half of a call."""
        self._jobs.append((self.costs.server / 2, then))

    def answered(self, call: _SimulatedCall) -> None:
        """Record an answer; its user sends the next call."""
        self._answers.append((self._now, self._now - call.began))
        self._sends.append(None)

    def run(self, seconds: float) -> Prediction:
        """Simulate this number of seconds."""
        self._sends.extend([None] * self._users)
        start = _WARMUP * seconds
        while self._now < seconds:
            self._begin()
            active = [worker for worker in self._workers if not worker.is_idle]
            rate = min(1.0, self._cores / sum(worker.width for worker in active))
            step = min(worker.left for worker in active)
            self._now += step / rate
            for worker in active:
                worker.left -= step
                if self._now > start:
                    worker.busy_seconds += step / rate
                    worker.work_seconds += step * worker.speed
            for worker in active:
                if worker.left <= 1e-12:
                    worker.left = math.inf
                    worker.done()
        return self._prediction(start)

    def _begin(self) -> None:
        if self._client.is_idle and self._sends:
            self._sends.popleft()
            self._client.begin(self._client_seconds, self._send)
        if self._server.is_idle and self._jobs:
            self._server.begin(*self._jobs.popleft())
        while self._waiting:
            process = min(self._processes, key=lambda one: one.num_calls)
            if not process.has_room:
                break
            process.num_calls += 1
            process.waiting.append(self._waiting.popleft())
        for process in self._processes:
            process.go_on()

    def _send(self) -> None:
        call = _SimulatedCall(self._now, self._random.choice(self.costs.steps))
        self.serve(lambda: self._waiting.append(call))

    def _prediction(self, start: float) -> Prediction:
        measured = self._now - start
        latencies = [latency for when, latency in self._answers if when > start]
        p50, p99 = np.percentile(latencies or [0.0], (50, 99))
        work = sum(one.work_seconds for one in self._workers)
        lanes = [lane.worker for process in self._processes for lane in process.lanes]
        return Prediction(
            cores=self._cores,
            processes=len(self._processes),
            users=self._users,
            rate=len(latencies) / measured,
            p50=float(p50),
            p99=float(p99),
            busy={
                SERVER: self._server.busy_seconds / measured,
                CORES: min(1.0, work / measured / self._cores),
                PROCESSES: sum(one.busy_seconds for one in lanes) / measured / len(lanes),
            },
        )


def predict(costs: Costs, cores: int, users: int, seconds: float) -> list[Prediction]:
    """Predictions for 1, 2, 4 ... model processes, as many as there are cores for."""
    counts = itertools.takewhile(lambda count: count <= cores, (2**n for n in range(9)))
    return [Simulation(costs, cores, count, users).run(seconds) for count in counts]

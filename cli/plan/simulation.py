"""Discrete-event simulation of replicas behind a balancer, in virtual time.

Each replica has a queue and a batch of rows. Between two steps, waiting sentences are encoded and
join the batch; the duration of a step depends on the number of rows. A run is a function of its
arguments alone.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from cli.plan.replica import MeasuredReplica

Routing = Literal["least-request", "round-robin", "random"]
ROUTINGS = get_args(Routing)

_ENTER, _STEPPED, _ENCODED, _FLEET = range(4)
# As the server's: see service/batching/encode_queue.py, and scheduler.py for the budgets.
_ENCODE_TOKENS = 512
_ENCODE_TOKENS_BESIDE = 192
_AHEAD_PART = 8
# As the server's admission controller: the longest wait, in seconds and in sentences.
_MIN_WAIT_SECONDS = 0.25
_WAIT_SENTENCES = 2.0
_ROUNDING = 1e-9


@dataclass(frozen=True)
class FleetEvent:
    """A change in the set of replicas.

    Attributes:
        at: seconds since the beginning.
        replica: number of the replica.
        kind: "join" (it serves from now on), "drain" (it gets no more calls and answers those that
            it has) or "lose" (its calls begin again on other replicas).
    """

    at: float
    replica: int
    kind: Literal["join", "drain", "lose"]


@dataclass(frozen=True)
class Traffic:
    """Calls of one sentence each.

    Attributes:
        times: arrivals in seconds, ascending.
        source_tokens, steps: length of each call's source, and its number of decoder steps.
    """

    times: npt.NDArray[np.float64]
    source_tokens: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]

    @classmethod
    def draw(
        cls, times: npt.NDArray[np.float64], lengths: Sequence[tuple[int, int]], seed: int
    ) -> Traffic:
        """Arrivals at these times, with lengths (source tokens, steps) drawn at random."""
        chosen = np.random.default_rng((seed, 1)).integers(len(lengths), size=len(times))
        pairs = np.asarray(lengths, dtype=np.int64).reshape(-1, 2)[chosen]
        return cls(times, pairs[:, 0], pairs[:, 1])


@dataclass(frozen=True)
class SimulatedRun:
    """Outcome of a run.

    Attributes:
        times: arrival times in seconds.
        latencies: seconds of each call; infinite for a call that was refused.
        busy_seconds: time in which a replica computed, of all replicas together.
        seconds: time from the first arrival to the last answer.
    """

    times: npt.NDArray[np.float64]
    latencies: npt.NDArray[np.float64]
    busy_seconds: float
    seconds: float

    @property
    def num_refused(self) -> int:
        """Calls that were refused."""
        return int(np.isinf(self.latencies).sum())

    def percentile(self, percent: float, start: float = 0.0, end: float = math.inf) -> float:
        """A percentile of the latency of calls that arrived from `start` to `end`."""
        inside = self.latencies[(self.times >= start) & (self.times < end)]
        if not inside.size:
            return math.nan
        return float(np.percentile(inside, percent, method="higher"))


@dataclass(eq=False, slots=True)
class _ReplicaState:
    """One replica.

    Attributes:
        is_open: whether it gets calls.
        is_lost: whether it has ended; calls on their way to it are void.
        num_active: calls that it has, as the balancer counts them.
        calls: calls that it holds.
        queue: calls that wait to be encoded.
        ready: encoded calls that wait for the next step.
        encoding: calls in the encode beside the steps.
        ends: (number of the step after which a row ends, call), a heap.
        num_steps: steps that have ended.
        num_planned: steps in flight, after which rows end or calls join; 0 if it is idle.
        steps_from: beginning of the first of them, after its encode.
        seconds: duration of each.
        version: number of the latest plan of steps; events of earlier ones are void.
        loop_free_at: time at which the event loop has parsed all calls.
        debt: seconds by which calls delay the step in flight, on a single core.
        busy: seconds of computation.
    """

    is_open: bool = True
    is_lost: bool = False
    num_active: int = 0
    calls: set[int] = field(default_factory=set)
    queue: deque[int] = field(default_factory=deque)
    ready: deque[int] = field(default_factory=deque)
    encoding: list[int] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)
    num_steps: int = 0
    num_planned: int = 0
    steps_from: float = 0.0
    seconds: float = 0.0
    version: int = 0
    loop_free_at: float = 0.0
    debt: float = 0.0
    busy: float = 0.0


class FleetSimulation:
    """Serves traffic with several replicas.

    Args:
        replica: durations of a replica's steps, encodes and calls.
        num_replicas: replicas at the beginning.
        routing: rule for the balancer's choice: "least-request" is Envoy's, the one with fewer
            calls of two random ones.
        seed: seed of the balancer's choices.
        max_wait_seconds: wait from which on a call is refused; None for the server's default.
    """

    def __init__(
        self,
        replica: MeasuredReplica,
        num_replicas: int,
        *,
        routing: Routing = "least-request",
        seed: int = 0,
        max_wait_seconds: float | None = None,
    ) -> None:
        self._replica = replica
        self._states = [_ReplicaState() for _ in range(num_replicas)]
        self._open = list(range(num_replicas))
        self._routing = routing
        self._random = random.Random(seed).random
        self._turn = itertools.count()
        self._step_seconds = [replica.step_seconds(n) for n in range(replica.max_rows + 1)]
        sentence = replica.mean_steps * self._step_seconds[-1]
        if max_wait_seconds is None:
            max_wait_seconds = max(_MIN_WAIT_SECONDS, _WAIT_SENTENCES * sentence)
        # Waiting calls are served at the rate of a full batch.
        self._max_active = replica.max_rows + max_wait_seconds * replica.capacity()
        beside = replica.encodes_beside_from_rows
        self._inline_rows = math.inf if beside is None else beside - 1
        self._events: list[tuple[float, int, int, Any, int]] = []
        self._numbers = itertools.count()

    def run(self, traffic: Traffic, events: Sequence[FleetEvent] = ()) -> SimulatedRun:
        """Serve all calls."""
        self._times = traffic.times.tolist()
        self._source_tokens = traffic.source_tokens.tolist()
        self._steps = traffic.steps.tolist()
        self._latencies = np.full(len(self._times), math.inf)
        for event in events:
            self._at(event.at, _FLEET, event)
        heap, times, now, coming = self._events, [*self._times, math.inf], 0.0, 0
        while heap or times[coming] < math.inf:
            if not heap or times[coming] <= heap[0][0]:
                now = times[coming]
                self._arrive(now, coming)
                coming += 1
                continue
            now, _, kind, subject, call = heapq.heappop(heap)
            if kind == _STEPPED:
                if call == subject.version:
                    self._stepped(now, subject)
            elif kind == _ENTER:
                self._enter(now, subject, call)
            elif kind == _ENCODED:
                self._encoded(now, subject)
            else:
                self._change(now, subject)
        busy = sum(state.busy for state in self._states)
        first = self._times[0] if self._times else 0.0
        return SimulatedRun(traffic.times, self._latencies, busy, now - first)

    def _at(self, when: float, kind: int, subject: Any, call: int = -1) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), kind, subject, call))

    # --- the balancer ----------------------------------------------------------------------------

    def _choose(self) -> int:
        numbers, count = self._open, len(self._open)
        if self._routing == "round-robin":
            return numbers[next(self._turn) % count]
        first = numbers[int(self._random() * count)]
        if self._routing == "random":
            return first
        second = numbers[int(self._random() * count)]  # may be the same, as in Envoy
        fewer = self._states[second].num_active < self._states[first].num_active
        return second if fewer else first

    def _arrive(self, now: float, call: int) -> None:
        if not self._open:
            return  # refused: no replica is there
        state, replica = self._states[self._choose()], self._replica
        entered = max(state.loop_free_at, now) + replica.call_seconds
        state.loop_free_at = entered
        if replica.is_single_core:
            state.busy += replica.call_seconds
            state.debt += replica.call_seconds if state.num_planned else 0.0
        if state.num_active >= self._max_active:
            return  # refused
        state.num_active += 1
        state.calls.add(call)
        self._at(entered, _ENTER, state, call)

    def _change(self, now: float, event: FleetEvent) -> None:
        while len(self._states) <= event.replica:
            self._states.append(_ReplicaState(is_open=False))
        state = self._states[event.replica]
        state.is_open = event.kind == "join"
        if state.is_open and state.is_lost:
            state = self._states[event.replica] = _ReplicaState()
        self._open = [n for n, one in enumerate(self._states) if one.is_open]
        if event.kind == "lose":
            calls, state.is_lost = sorted(state.calls), True
            state.calls.clear()
            for call in calls:
                self._arrive(now, call)

    # --- one replica -----------------------------------------------------------------------------

    def _enter(self, now: float, state: _ReplicaState, call: int) -> None:
        if call not in state.calls:
            return  # its replica was lost
        state.queue.append(call)
        self._wake(now, state)

    def _wake(self, now: float, state: _ReplicaState) -> None:
        """Let a call that has come join after the step in flight, or at once."""
        if not state.num_planned:
            self._step(now, state)
            return
        self._encode_beside(now, state)
        if len(state.ends) >= self._replica.max_rows:
            return
        passed = max(1, math.ceil((now - state.steps_from) / state.seconds - _ROUNDING))
        if passed < state.num_planned:
            self._plan_steps(state, passed)

    def _plan_steps(self, state: _ReplicaState, number: int) -> None:
        state.num_planned = number
        state.version += 1
        self._at(state.steps_from + number * state.seconds, _STEPPED, state, state.version)

    def _step(self, now: float, state: _ReplicaState) -> None:
        """Let calls join, encode them if that is not done beside the steps, and begin steps.

        As long as no call comes, nothing changes until the first row ends.
        """
        ends, num_tokens = state.ends, 0
        if not self._encode_beside(now, state):
            while state.queue and len(ends) + len(state.ready) < self._replica.max_rows:
                tokens = self._source_tokens[state.queue[0]]
                if num_tokens and num_tokens + tokens > _ENCODE_TOKENS:
                    break
                num_tokens += tokens
                state.ready.append(state.queue.popleft())
        while state.ready and len(ends) < self._replica.max_rows:
            call = state.ready.popleft()
            heapq.heappush(ends, (state.num_steps + self._steps[call], call))
        if not ends:
            return
        encode = self._replica.encode_seconds(num_tokens) if num_tokens else 0.0
        state.busy += encode
        state.steps_from, state.seconds = now + encode, self._step_seconds[len(ends)]
        is_full = len(ends) >= self._replica.max_rows
        may_join = bool(state.queue or state.ready) and not is_full
        self._plan_steps(state, 1 if may_join else ends[0][0] - state.num_steps)

    def _stepped(self, now: float, state: _ReplicaState) -> None:
        if state.is_lost:
            return
        if state.debt:
            debt, state.debt = state.debt, 0.0
            self._at(now + debt, _STEPPED, state, state.version)
            return
        state.num_steps += state.num_planned
        state.busy += state.num_planned * state.seconds
        state.num_planned = 0
        ends, other = state.ends, self._replica.other_seconds
        while ends and ends[0][0] <= state.num_steps:
            _, call = heapq.heappop(ends)
            self._latencies[call] = now - self._times[call] + other
            state.num_active -= 1
            state.calls.discard(call)
        self._step(now, state)

    def _encode_beside(self, now: float, state: _ReplicaState) -> bool:
        """Begin an encode beside the steps, if sources wait; returns False with too few rows."""
        encoding, max_rows = state.encoding, self._replica.max_rows
        num_used = len(state.ends) + len(state.ready) + len(encoding)
        if num_used + len(state.queue) <= self._inline_rows:
            return False
        if encoding:
            return True
        num_tokens, most = 0, max_rows + max(1, max_rows // _AHEAD_PART)
        while state.queue and num_used + len(encoding) < most:
            tokens = self._source_tokens[state.queue[0]]
            if num_tokens and num_tokens + tokens > _ENCODE_TOKENS_BESIDE:
                break
            num_tokens += tokens
            encoding.append(state.queue.popleft())
        if num_tokens:
            self._at(now + self._replica.encode_seconds(num_tokens), _ENCODED, state)
        return True

    def _encoded(self, now: float, state: _ReplicaState) -> None:
        if state.is_lost:
            return
        state.ready.extend(state.encoding)
        state.encoding.clear()
        self._wake(now, state)

"""A runner with lanes and without a model: a `FakeRunner` for each lane."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence

from service.domain.plan import EncodedBatch, LaneRunners, RunnerLimits, StepOutput, StepPlan
from tests.fake_runner import FakeRunner, Script, babble, encoded_source


class _Way:
    """One of the two ways to run a lane: as its fake, and notes which it was."""

    def __init__(self, lanes: FakeLanes, number: int, name: str) -> None:
        self._lanes = lanes
        self._number = number
        self._runner = lanes.runners[number]
        self._name = name

    @property
    def limits(self) -> RunnerLimits:
        return self._runner.limits

    def execute(self, plan: StepPlan) -> StepOutput:
        self._lanes.stepped.append(self._number)
        self._lanes.ways[self._number].append(self._name)
        return self._runner.execute(plan)

    def close(self) -> None:
        raise AssertionError("the lanes are closed together")


class FakeLanes:
    """A `LanedRunner` of fakes.

    Args:
        limits: limits of each lane.
        num_lanes: number of lanes.
        script: returns the target tokens for a source.

    Attributes:
        runners: the fake of each lane, to be held, failed and looked at.
        ways: "alone" or "beside" for every plan of each lane so far.
        stepped: number of the lane of each plan so far.
        encoded: sources that were encoded together, beside the steps.
        may_encode: cleared, it holds every encode beside the steps, until `release`.
        is_encoding: set while one is in flight.
        failures: raised by the next encodes.
    """

    def __init__(self, limits: RunnerLimits, num_lanes: int = 2, script: Script = babble) -> None:
        self.runners = [FakeRunner(limits, script) for _ in range(num_lanes)]
        self.ways: list[list[str]] = [[] for _ in range(num_lanes)]
        self.stepped: list[int] = []
        self.encoded: list[list[tuple[int, ...]]] = []
        self.may_encode = threading.Event()
        self.may_encode.set()
        self.is_encoding = threading.Event()
        self.failures: list[Exception] = []
        self._limits = dataclasses.replace(limits, max_rows=num_lanes * limits.max_rows)

    @property
    def limits(self) -> RunnerLimits:
        """Of all lanes together."""
        return self._limits

    @property
    def lanes(self) -> Sequence[LaneRunners]:
        """The lanes; both ways of one lead to the same fake."""
        return [
            LaneRunners(_Way(self, number, "alone"), _Way(self, number, "beside"))
            for number in range(len(self.runners))
        ]

    @property
    def closed(self) -> bool:
        """Whether all have been closed."""
        return all(runner.closed for runner in self.runners)

    def encode(self, sources: Sequence[tuple[int, ...]]) -> EncodedBatch:
        """Sources that a `FakeRunner` knows again."""
        self.is_encoding.set()
        self.may_encode.wait()
        self.is_encoding.clear()
        assert not self.closed, "encoded after close"
        self.encoded.append(list(sources))
        if self.failures:
            raise self.failures.pop(0)
        return EncodedBatch([encoded_source(source) for source in sources], num_padding=1)

    def hold(self) -> None:
        """Block every execution from now on, until `release`."""
        for runner in self.runners:
            runner.hold()

    def release(self) -> None:
        """Block no more."""
        self.may_encode.set()
        for runner in self.runners:
            runner.release()

    def close(self) -> None:
        """Close all."""
        for runner in self.runners:
            runner.close()

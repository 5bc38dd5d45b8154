"""A runner with lanes and without a model: a `FakeRunner` for each lane."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence

from service.domain.plan import EncodedBatch, LaneRunners, RunnerLimits, StepOutput, StepPlan
from tests.fake_runner import FakeRunner, Script, babble, encoded_source


class _Way:
    """One of the two runners of a lane: passes plans to the lane's fake, and records itself."""

    def __init__(self, lanes: FakeLanes, number: int, name: str) -> None:
        self._lanes = lanes
        self._number = number
        self._runner = lanes.runners[number]
        self._name = name

    @property
    def limits(self) -> RunnerLimits:
        return self._runner.limits

    def execute(self, plan: StepPlan) -> StepOutput:
        self._note()
        return self._runner.execute(plan)

    def follow_up(self) -> StepOutput:
        self._note()
        return self._runner.follow_up()

    def _note(self) -> None:
        self._lanes.stepped.append(self._number)
        self._lanes.ways[self._number].append(self._name)

    def close(self) -> None:
        raise AssertionError("the lanes are closed together")


class FakeLanes:
    """A `LanedRunner` of fakes.

    Args:
        limits: limits of each lane.
        num_lanes: number of lanes.
        script: returns the target tokens for a source.

    Attributes:
        runners: fake of each lane, which tests can hold, fail and inspect.
        ways: "alone" or "beside" for every plan of each lane so far.
        stepped: number of the lane of each plan so far.
        encoded: sources that were encoded together, beside the steps.
        may_encode: event; while it is cleared, every encode beside the steps waits.
        is_encoding: event, set while an encode is in flight.
        failures: errors that the next encodes raise.
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
        """Limits of all lanes together."""
        return self._limits

    @property
    def lanes(self) -> Sequence[LaneRunners]:
        """The lanes; both runners of a lane use the same fake."""
        return [
            LaneRunners(_Way(self, number, "alone"), _Way(self, number, "beside"))
            for number in range(len(self.runners))
        ]

    @property
    def closed(self) -> bool:
        """Whether all have been closed."""
        return all(runner.closed for runner in self.runners)

    def encode(self, sources: Sequence[tuple[int, ...]]) -> EncodedBatch:
        """Sources that a `FakeRunner` recognises."""
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
        """Stop blocking."""
        self.may_encode.set()
        for runner in self.runners:
            runner.release()

    def close(self) -> None:
        """Close all runners."""
        for runner in self.runners:
            runner.close()

"""A runner with lanes and without a model: a `FakeRunner` for each lane."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from service.fake_runner import FakeRunner, Script, babble
from service.plan import LaneRunners, RunnerLimits, StepOutput, StepPlan


class _Way:
    """One of the two ways to run a lane: as its fake, and notes which it was."""

    def __init__(self, runner: FakeRunner, name: str, ways: list[str]) -> None:
        self._runner = runner
        self._name = name
        self._ways = ways

    @property
    def limits(self) -> RunnerLimits:
        return self._runner.limits

    def execute(self, plan: StepPlan) -> StepOutput:
        self._ways.append(self._name)
        return self._runner.execute(plan)

    def close(self) -> None:
        raise AssertionError("the lanes are closed together")


class FakeLanes:
    """A `LanedRunner` of fakes.

    Args:
        limits: of each lane.
        num_lanes: how many.
        script: target tokens for a source.

    Attributes:
        runners: the fake of each lane, to be held, failed and looked at.
        ways: of each lane, "alone" or "beside" for every plan so far.
    """

    def __init__(self, limits: RunnerLimits, num_lanes: int = 2, script: Script = babble) -> None:
        self.runners = [FakeRunner(limits, script) for _ in range(num_lanes)]
        self.ways: list[list[str]] = [[] for _ in range(num_lanes)]
        self._limits = dataclasses.replace(limits, max_rows=num_lanes * limits.max_rows)

    @property
    def limits(self) -> RunnerLimits:
        """Of all lanes together."""
        return self._limits

    @property
    def lanes(self) -> Sequence[LaneRunners]:
        """The lanes; both ways of one lead to the same fake."""
        return [
            LaneRunners(_Way(runner, "alone", ways), _Way(runner, "beside", ways))
            for runner, ways in zip(self.runners, self.ways, strict=True)
        ]

    @property
    def closed(self) -> bool:
        """Whether all have been closed."""
        return all(runner.closed for runner in self.runners)

    def hold(self) -> None:
        """Block every execution from now on, until `release`."""
        for runner in self.runners:
            runner.hold()

    def release(self) -> None:
        """Block no more."""
        for runner in self.runners:
            runner.release()

    def close(self) -> None:
        """Close all."""
        for runner in self.runners:
            runner.close()

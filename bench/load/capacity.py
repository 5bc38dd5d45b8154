"""The search for a server's capacity: the highest Poisson rate at which it keeps a promise.

Capacity means: the promise was kept for at least 60 seconds, with enough samples to say so, without
a single error. Short probes find the neighbourhood; only long trials count.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.load.errors import LoadError, PlanError
from bench.load.plan import LoadPlan
from bench.load.results import RUN_FILE, Results, completed, read_results
from bench.load.session import RunProgress, Session
from bench.load.statistics import Summary
from bench.load.units import Slo

CONFIRM_SECONDS = 60.0
PROBE_SECONDS = 10.0
_PROBE_RATIO = 1.25
_STEP = 1.1
_MIN_RATE = 0.01
# In a row, at one rate: another program may disturb one trial.
_MOST_INVALID = 3


class Stage(enum.Enum):
    """The kind of a trial."""

    PROBE = "probe"
    CONFIRM = "confirm"


class CapacitySearch:
    """Chooses the next rate to try: doubling and halving, then bisecting on a geometric scale.

    Pure: `next` gives the rate to try, `observe` takes the outcome.

    Args:
        start: the rate to begin with, in requests a second.
        resolution: the search ends when a rate that broke the promise is at most this share above
            one that kept it.
        probe_step: the factor between probes until one kept the promise and one broke it.
        trusts_probes: whether a rate counts as broken after a probe. That is faster, but the
            capacity found may be too low, since a probe has few samples. A kept rate is always
            confirmed.
    """

    def __init__(
        self,
        start: float,
        resolution: float = 0.05,
        probe_step: float = 2.0,
        trusts_probes: bool = False,
    ) -> None:
        self._start = start
        self._resolution = resolution
        self._probe_step = probe_step
        self._trusts_probes = trusts_probes
        self._kept: dict[Stage, float | None] = dict.fromkeys(Stage)
        self._broken: dict[Stage, float | None] = dict.fromkeys(Stage)

    @property
    def capacity(self) -> float | None:
        """The highest rate that a long trial has kept so far."""
        return self._kept[Stage.CONFIRM]

    def next(self) -> tuple[float, Stage] | None:
        """The rate to try and for how long; None when the search is over."""
        rate = self._next_probe()
        if rate is not None:
            return rate, Stage.PROBE
        rate = self._next_trial()
        return None if rate is None else (rate, Stage.CONFIRM)

    def observe(self, rate: float, stage: Stage, kept: bool) -> None:
        """Record whether `rate` kept the promise."""
        if kept:
            self._kept[stage] = max(rate, self._kept[stage] or 0.0)
        else:
            self._broken[stage] = min(rate, self._broken[stage] or math.inf)

    def _next_probe(self) -> float | None:
        kept, broken = self._kept[Stage.PROBE], self._broken[Stage.PROBE]
        if kept is None and broken is None:
            return self._start
        if broken is None:
            assert kept is not None, "one of the two is known"
            return self._probe_step * kept
        if kept is None:
            return broken / self._probe_step if broken > _MIN_RATE else None
        # A probe is short, so chance may make a lower rate fail where a higher one passed.
        return math.sqrt(kept * broken) if broken / kept > _PROBE_RATIO else None

    def _next_trial(self) -> float | None:
        kept, broken = self._kept[Stage.CONFIRM], self._broken[Stage.CONFIRM]
        if self._trusts_probes and kept is not None and broken is None:
            broken = self._broken[Stage.PROBE]
            if broken is not None and broken <= kept:
                broken = None
        if kept is None and broken is None:
            return self._kept[Stage.PROBE]  # None: not even the lowest rate was carried
        if broken is None:
            assert kept is not None, "one of the two is known"
            return kept * _STEP
        if kept is None:
            return broken / _STEP if broken > _MIN_RATE else None
        return math.sqrt(kept * broken) if broken / kept > 1 + self._resolution else None


@dataclass(frozen=True)
class Trial:
    """One rate and its outcome.

    Attributes:
        rate: requests a second.
        stage: how long it was tried.
        kept: whether the promise was kept.
        why: what broke it; "" if nothing did.
        summary: the figures.
    """

    rate: float
    stage: Stage
    kept: bool
    why: str
    summary: Summary

    def __str__(self) -> str:
        outcome = "kept" if self.kept else f"broken ({self.why})"
        return f"{self.rate:.4g}/s, {self.stage.value}: promise {outcome}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "rate": self.rate,
            "stage": self.stage.value,
            "kept": self.kept,
            "why": self.why,
            "summary": self.summary.to_dict(),
        }


@dataclass(frozen=True)
class Capacity:
    """The result of a search.

    Attributes:
        slo: the promise.
        rate: the capacity in requests a second; None if no rate was carried.
        trials: all, in order.
        ended_early: why the search was broken off; "" if it was not.
    """

    slo: Slo
    rate: float | None
    trials: Sequence[Trial]
    ended_early: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "slo": {"percentile": self.slo.percentile, "seconds": self.slo.seconds},
            "capacity": self.rate,
            "ended_early": self.ended_early,
            "trials": [trial.to_dict() for trial in self.trials],
        }


@dataclass(frozen=True)
class CapacityTest:
    """Runs a search.

    Attributes:
        session: what the trials have in common; has a promise.
        plan: of the trials; its rate is where the search begins.
        confirm_seconds, probe_seconds: how long the two kinds of trials are measured.
        resolution: as in `CapacitySearch`.
        probe_step, trusts_probes: as in `CapacitySearch`.
        max_trials: most trials of both kinds.
        disturbance: the reason why a trial that broke its promise was disturbed, and is repeated;
            "" if it was not.
        max_trial_seconds: the search ends where enough samples would take longer.
        least_rate: below it, in requests a second, the search ends.
        resumes: whether ended trials of an interrupted search in the output directory are reused;
            otherwise that directory must be new.
    """

    session: Session
    plan: LoadPlan
    confirm_seconds: float = CONFIRM_SECONDS
    probe_seconds: float = PROBE_SECONDS
    resolution: float = 0.05
    probe_step: float = 2.0
    trusts_probes: bool = False
    max_trials: int = 40
    max_trial_seconds: float = math.inf
    disturbance: Callable[[Results], str] = lambda results: ""
    least_rate: float = 0.0
    resumes: bool = False

    def __post_init__(self) -> None:
        if self.session.slo is None:
            raise PlanError("--find-capacity needs a promise, such as --slo p99=500ms")
        if self.plan.rate is None or self.plan.arrivals != "poisson":
            raise PlanError("--find-capacity searches for a Poisson rate: no other arrivals")

    def run(
        self,
        output: Path | None = None,
        observer: Callable[[RunProgress], bool] = lambda progress: False,
        on_trial: Callable[[Trial], None] = lambda trial: None,
    ) -> Capacity:
        """Search. Trials are stored under `output`/trials.

        Raises:
            LoadError: the first trial could not be made; later ones end the search.
        """
        assert self.plan.rate is not None, "checked"
        assert self.session.slo is not None, "checked"
        search = CapacitySearch(
            self.plan.rate, self.resolution, self.probe_step, self.trusts_probes
        )
        trials: list[Trial] = []
        ended_early = ""
        num_invalid = 0
        while (wanted := search.next()) is not None and not ended_early:
            if len(trials) == self.max_trials:
                ended_early = f"no end after {self.max_trials} trials"
                break
            rate, stage = wanted
            if rate < self.least_rate:
                ended_early = f"the promise is broken at {self.least_rate:.3g} requests/s, too"
                break
            if self._seconds(rate, stage) > self.max_trial_seconds:
                ended_early = (
                    f"at {rate:.3g} requests/s a trial of enough samples would take longer than "
                    f"{self.max_trial_seconds:g} s"
                )
                break
            try:
                results = self._try(rate, stage, len(trials) + 1, output, observer)
            except LoadError as exc:
                if not trials:
                    raise
                ended_early = str(exc)
                break
            trial = judge(results, stage)
            trials.append(trial)
            on_trial(trial)
            problem = _reason_to_end(results) or ("" if trial.kept else self.disturbance(results))
            num_invalid = num_invalid + 1 if problem else 0
            if not problem:
                search.observe(rate, stage, trial.kept)
            elif results.run.broken_off not in ("", "stopped") or num_invalid == _MOST_INVALID:
                ended_early = problem
        return Capacity(self.session.slo, search.capacity, trials, ended_early)

    def _seconds(self, rate: float, stage: Stage) -> float:
        """How long a trial is measured."""
        if stage is Stage.PROBE:
            return self.probe_seconds
        assert self.session.slo is not None, "checked"
        least = self.session.slo.min_samples
        # Enough that chance does not leave too few samples.
        return max(self.confirm_seconds, (least + 4 * math.sqrt(least)) / rate)

    def _try(
        self,
        rate: float,
        stage: Stage,
        number: int,
        output: Path | None,
        observer: Callable[[RunProgress], bool],
    ) -> Results:
        slo = self.session.slo
        assert slo is not None, "checked"
        seconds = self._seconds(rate, stage)
        # Another seed for each trial, so that one unlucky order of arrivals does not decide all.
        plan = dataclasses.replace(
            self.plan, rate=rate, duration=seconds, seed=self.plan.seed + number
        )
        directory = None if output is None else output / "trials" / f"{number:02d}-{rate:.4g}"
        if self.resumes and directory is not None:
            done = completed(directory, ("", "stopped"))
            if done is not None:
                return done
            shutil.rmtree(directory, ignore_errors=True)
        watch = _Watch(plan, slo, observer)
        return self.session.run(plan, directory, watch)


class _Watch:
    """Ends a trial as soon as it can no longer keep its promise."""

    def __init__(self, plan: LoadPlan, slo: Slo, observer: Callable[[RunProgress], bool]) -> None:
        self._plan = plan
        self._slo = slo
        self._observer = observer
        self._num_seen = 0
        self._num_late = 0
        assert plan.rate is not None, "an open loop"
        expected = plan.rate * plan.duration
        most = expected + 4 * math.sqrt(expected)
        self._allowed = most * (1 - slo.percentile / 100)

    def __call__(self, progress: RunProgress) -> bool:
        for sample in progress.samples[self._num_seen :]:
            if sample.scheduled >= self._plan.warmup:
                self._num_late += sample.latency > self._slo.seconds
                if sample.failed:
                    self._num_late += math.ceil(self._allowed) + 1
        self._num_seen = len(progress.samples)
        stop = self._observer(progress)
        return stop or self._num_late > self._allowed


def stage_of(plan: LoadPlan) -> Stage:
    """Which kind of trial a stored one was, with the usual times."""
    return Stage.CONFIRM if plan.duration >= CONFIRM_SECONDS else Stage.PROBE


def judge(results: Results, stage: Stage) -> Trial:
    """Whether a trial kept its promise, and if not, why."""
    summary = results.summary()
    slo, rate = results.slo, results.run.plan.rate
    assert slo is not None, "a capacity test has one"
    assert rate is not None, "and an open loop"
    measured = results.run.measured()
    late = sum(s.ok and s.latency > slo.seconds for s in measured)
    share = late / max(1, summary.num_ok)
    why = ""
    if summary.errors:
        why = ", ".join(f"{count} {code}" for code, count in summary.errors.items())
    elif share > 1 - slo.percentile / 100 + 1e-12 or results.run.broken_off:
        why = f"{share:.1%} were later than {slo.seconds * 1e3:g} ms"
    elif summary.num_ok == 0:
        why = "no answers"
    elif stage is Stage.CONFIRM and summary.slo_kept is None:
        why = "too few samples to say"
    return Trial(rate, stage, not why, why, summary)


def read_trials(directory: Path) -> list[Trial]:
    """The trials of a search, judged anew from their raw samples, in order.

    Raises:
        ResultsError: a trial's files are damaged.
    """
    stored = [read_results(file.parent) for file in (directory / "trials").glob(f"*/{RUN_FILE}")]
    trials = [judge(results, stage_of(results.run.plan)) for results in stored]
    return sorted(trials, key=lambda trial: trial.rate)


def capacity_of(trials: Sequence[Trial]) -> float | None:
    """The highest rate that a long trial kept; None if none did."""
    long = (trial for trial in trials if trial.stage is Stage.CONFIRM and trial.summary.valid)
    return max((trial.rate for trial in long if trial.kept), default=None)


def _reason_to_end(results: Results) -> str:
    """Why the search can't go on after this trial; "" if it can."""
    broken_off = results.run.broken_off
    if broken_off and broken_off != "stopped":
        return broken_off
    if broken_off:
        return ""  # ended by `_Watch`: the rest of the problems follow from that
    problems = results.summary().problems
    return problems[0] if problems else ""

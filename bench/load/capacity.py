"""The search for a server's capacity: the highest Poisson rate that meets a latency target.

A closed loop estimates where it may lie. Each trial then offers one rate, for at least the duration
of the plan, until there are enough samples for the target's percentile, and long enough for a
queue to grow. A trial that can no longer meet the target ends at once.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.load.coordinator import INTERRUPTED
from bench.load.errors import LoadError, PlanError
from bench.load.plan import LoadPlan
from bench.load.results import RUN_FILE, Results, completed, read_results
from bench.load.session import RunProgress, Session
from bench.load.statistics import Summary
from bench.load.units import Slo
from model.training.signals import on_stop_signal

TRIAL_SECONDS = 60.0
"""Usual least duration of a trial in seconds."""
ESTIMATE_USERS = 32
"""Users of the closed loop before the search."""
_ESTIMATE_SECONDS = 5.0
# A closed loop keeps a server busier than random arrivals may.
_SHARE_OF_CLOSED = 0.9
_MAX_STEP = 4.0
# The least duration of a trial, in multiples of the target's time. With 10 % more requests than a
# server can answer, its queue takes ten times the target to reach it.
_TIMES_TARGET = 20.0
_ROUNDING = 1 + 1e-9
_MIN_RATE = 0.01
# In a row, at one rate: another program may disturb one trial.
_MOST_INVALID = 3


class CapacitySearch:
    """Chooses the next rate to try: steps that grow, then bisection, on a geometric scale.

    Pure: `next` gives the rate to try, `observe` takes the outcome.

    Args:
        start: the rate to begin with, in requests a second.
        resolution: the search ends when a rate that missed the target is at most this share above
            one that met it.

    Attributes:
        capacity: the highest rate that met the target so far; None if none has.
    """

    def __init__(self, start: float, resolution: float = 0.1) -> None:
        self.capacity: float | None = None
        self._start = start
        self._resolution = resolution
        self._broken: float | None = None
        self._num_observed = 0

    def next(self) -> float | None:
        """The rate to try; None when the search is over."""
        kept, broken = self.capacity, self._broken
        # Twice the exponent of the last one, so that bisection ends at the resolution.
        exponent = 2.0 ** min(self._num_observed, 10)
        step: float = min((1 + self._resolution) ** exponent, _MAX_STEP)
        if kept is None and broken is None:
            return self._start
        if broken is None:
            assert kept is not None, "one of the two is known"
            return kept * step
        if kept is None:
            return broken / step if broken > _MIN_RATE else None
        most = (1 + self._resolution) * _ROUNDING
        return math.sqrt(kept * broken) if broken / kept > most else None

    def observe(self, rate: float, kept: bool) -> None:
        """Record whether `rate` met the target."""
        self._num_observed += 1
        if kept:
            self.capacity = max(rate, self.capacity or 0.0)
        else:
            self._broken = min(rate, self._broken or math.inf)


@dataclass(frozen=True)
class Trial:
    """One rate and its outcome.

    Attributes:
        rate: requests a second.
        kept: whether the target was met; None if the trial does not tell.
        why: reason why it was missed, or why the trial does not tell; "" if it was met.
    """

    rate: float
    kept: bool | None
    why: str
    summary: Summary

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        return {True: "kept", False: f"broken: {self.why}", None: f"unknown: {self.why}"}[self.kept]

    def __str__(self) -> str:
        return f"{self.rate:.4g}/s for {self.summary.seconds:.0f} s: promise {self.verdict}"


@dataclass(frozen=True)
class Capacity:
    """The result of a search.

    Attributes:
        rate: the highest rate that met the target, in requests a second; None if none did.
        ended_early: reason why the search was broken off; "" if it was not.
    """

    slo: Slo
    rate: float | None
    trials: Sequence[Trial]
    ended_early: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "slo": asdict(self.slo),
            "capacity": self.rate,
            "ended_early": self.ended_early,
            "trials": [{**vars(one), "summary": one.summary.to_dict()} for one in self.trials],
        }


@dataclass(frozen=True)
class CapacityTest:
    """Runs a search.

    Attributes:
        session: settings that all trials share, with a latency target.
        plan: plan of the trials, with their shortest duration. The search begins at an open loop's
            rate; a closed loop is run first, briefly, to estimate it.
        resolution: as in `CapacitySearch`.
        disturbance: the reason why a trial that missed its target was disturbed, and is repeated;
            "" if it was not.
        max_trial_seconds: the search ends where enough samples would take longer.
        resumes: whether ended trials of an interrupted search in the output directory are reused;
            otherwise that directory must be new.
    """

    session: Session
    plan: LoadPlan
    resolution: float = 0.1
    max_trials: int = 40
    max_trial_seconds: float = math.inf
    disturbance: Callable[[Results], str] = lambda results: ""
    resumes: bool = False

    def __post_init__(self) -> None:
        if self.session.slo is None:
            raise PlanError("--find-capacity needs a promise, such as --slo p99=500ms")
        if self.plan.arrivals != "poisson":
            raise PlanError("--find-capacity searches for a Poisson rate: no other arrivals")

    def run(
        self,
        output: Path | None = None,
        observer: Callable[[RunProgress], bool] = lambda progress: False,
        on_trial: Callable[[Trial], None] = lambda trial: None,
    ) -> Capacity:
        """Search. Ctrl-C or SIGTERM ends it with what was found.

        Trials are stored under `output`/trials.

        Raises:
            LoadError: the first run could not be made; later ones end the search.
        """
        assert self.session.slo is not None, "checked"
        trials: list[Trial] = []
        try:
            # Outside of runs, which handle the signals themselves.
            with on_stop_signal(signal.default_int_handler):
                start, ended_early = self._start(observer)
                if not ended_early:
                    search = CapacitySearch(start, self.resolution)
                    ended_early = self._search(search, trials, output, observer, on_trial)
        except KeyboardInterrupt:
            ended_early = INTERRUPTED
        return Capacity(self.session.slo, capacity_of(trials), trials, ended_early)

    def _start(self, observer: Callable[[RunProgress], bool]) -> tuple[float, str]:
        """The rate to begin with, and the reason why the search can't begin, or ""."""
        if self.plan.rate is not None:
            return self.plan.rate, ""
        plan = dataclasses.replace(self.plan, duration=_ESTIMATE_SECONDS, warmup=0.0)
        results = self.session.run(plan, None, observer)
        run = results.run
        ended = [sample.ended for sample in run.samples if sample.ok]
        if not ended and not run.broken_off:
            raise LoadError(f"no request was answered: {_errors(results.summary())}")
        rate = len(ended) / max(ended, default=1.0)
        return _SHARE_OF_CLOSED * rate, run.broken_off

    def _search(
        self,
        search: CapacitySearch,
        trials: list[Trial],
        output: Path | None,
        observer: Callable[[RunProgress], bool],
        on_trial: Callable[[Trial], None],
    ) -> str:
        """Make trials until the capacity is known; returns the reason for an earlier end, or ""."""
        num_unknown = 0
        while (rate := search.next()) is not None:
            if problem := self._objection(rate, len(trials)):
                return problem
            try:
                results = self._try(rate, len(trials) + 1, output, observer)
            except LoadError as exc:
                if not trials:
                    raise
                return str(exc)
            trial = judge(results)
            if trial.kept is False and (problem := self.disturbance(results)):
                trial = dataclasses.replace(trial, kept=None, why=problem)
            trials.append(trial)
            on_trial(trial)
            num_unknown = num_unknown + 1 if trial.kept is None else 0
            if trial.kept is not None:
                search.observe(rate, trial.kept)
            elif results.run.broken_off not in ("", "stopped") or num_unknown == _MOST_INVALID:
                return trial.why
        return ""

    def _objection(self, rate: float, num_trials: int) -> str:
        """The reason why a trial at a rate is not made; "" if it is."""
        if num_trials == self.max_trials:
            return f"no end after {self.max_trials} trials"
        if self._seconds(rate) > self.max_trial_seconds:
            return (
                f"at {rate:.3g} requests/s a trial of enough samples would take longer than "
                f"{self.max_trial_seconds:g} s"
            )
        return ""

    def _seconds(self, rate: float) -> float:
        """The measured duration of a trial."""
        assert self.session.slo is not None, "checked"
        least = self.session.slo.min_samples
        # Enough that chance does not leave too few samples.
        for_samples = (least + 4 * math.sqrt(least)) / rate
        return max(self.plan.duration, for_samples, _TIMES_TARGET * self.session.slo.seconds)

    def _try(
        self,
        rate: float,
        number: int,
        output: Path | None,
        observer: Callable[[RunProgress], bool],
    ) -> Results:
        slo = self.session.slo
        assert slo is not None, "checked"
        # Another seed for each trial, so that one unlucky order of arrivals does not decide all.
        seed, seconds = self.plan.seed + number, self._seconds(rate)
        plan = dataclasses.replace(
            self.plan, rate=rate, concurrency=None, duration=seconds, seed=seed
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
    """Ends a trial as soon as it can no longer meet its target."""

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
        for sample in progress.run.samples[self._num_seen :]:
            if sample.scheduled >= self._plan.warmup:
                self._num_late += sample.latency > self._slo.seconds
                if sample.failed:
                    self._num_late += math.ceil(self._allowed) + 1
        self._num_seen = len(progress.run.samples)
        stop = self._observer(progress)
        return stop or self._num_late > self._allowed


def judge(results: Results) -> Trial:
    """Whether a trial met its target, with the reason if it did not or if that is unknown."""
    summary = results.summary()
    slo, rate = results.slo, results.run.plan.rate
    assert slo is not None, "a capacity test has one"
    assert rate is not None, "and an open loop"
    if problem := _reason_to_end(results):
        return Trial(rate, None, problem, summary)
    measured = results.run.measured()
    late = sum(s.ok and s.latency > slo.seconds for s in measured)
    share = late / max(1, summary.num_ok)
    why = ""
    if summary.errors:
        why = _errors(summary)
    elif share > 1 - slo.percentile / 100 + 1e-12 or results.run.broken_off:
        why = f"{share:.1%} were later than {slo.seconds * 1e3:g} ms"
    elif summary.num_ok == 0:
        why = "no answers"
    elif summary.slo_kept is None:
        return Trial(rate, None, "too few samples to say", summary)
    return Trial(rate, not why, why, summary)


def read_trials(directory: Path) -> list[Trial]:
    """The trials of a search, judged anew from their raw samples, in order.

    Raises:
        ResultsError: a trial's files are damaged.
    """
    stored = [read_results(file.parent) for file in (directory / "trials").glob(f"*/{RUN_FILE}")]
    return sorted(map(judge, stored), key=lambda trial: trial.rate)


def capacity_of(trials: Sequence[Trial]) -> float | None:
    """The highest rate that a trial kept; None if none did."""
    return max((trial.rate for trial in trials if trial.kept), default=None)


def _errors(summary: Summary) -> str:
    return ", ".join(f"{count} {code}" for code, count in summary.errors.items())


def _reason_to_end(results: Results) -> str:
    """The reason why a trial does not tell whether the target was met; "" if it does."""
    broken_off = results.run.broken_off
    if broken_off and broken_off != "stopped":
        return broken_off
    if broken_off:
        return ""  # ended by `_Watch`: the rest of the problems follow from that
    problems = results.summary().problems
    return problems[0] if problems else ""

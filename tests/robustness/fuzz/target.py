"""Targets of the fuzzer, which make an input from a seed, run it, and judge the outcome.

An input is determined by its target, the seed of the run and its number, so it can be made again.
"""

from __future__ import annotations

import random
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

ROOT = Path(__file__).resolve().parents[3]
# Where files are written a thousand times a second, if there is such a place.
MEMORY = next((path for path in ("/dev/shm",) if Path(path).is_dir()), None)

T = TypeVar("T")


class Finding(Exception):
    """A property does not hold. The first argument is the property, the second the evidence."""

    def __init__(self, what: str, evidence: str = "") -> None:
        super().__init__(what, evidence)
        self.what = what
        self.evidence = evidence


class ParserTarget(Protocol[T]):
    """A parser in this process.

    Attributes:
        name: name on the command line and in the report.
        share: share of the inputs of a run, relative to other targets.
        what: description of the covered code, for the report.
    """

    name: ClassVar[str]
    share: ClassVar[float]
    what: ClassVar[str]

    def generate(self, rng: random.Random) -> T:
        """Generate an input."""
        ...

    def run(self, given: T) -> str:
        """Parse an input, and check the result.

        Returns:
            The outcome as a word: a kind of result, or a refusal.

        Raises:
            Finding: a property does not hold.
            Exception: any other error is a defect of the parser.
        """
        ...


def random_of(name: str, seed: int, number: int) -> random.Random:
    """The random generator of one input, which is the same on any machine."""
    return random.Random(f"{name}:{seed}:{number}")


@dataclass
class Defect:
    """Findings of a target's inputs that look like the same defect.

    Attributes:
        what: exception and its place, or the property that does not hold.
        evidence: evidence of the first input.
        number: number of the first input; -1 if unknown.
        count: number of inputs.
    """

    what: str
    evidence: str
    number: int
    count: int = 1


@dataclass
class Tally:
    """Results of the inputs of a target.

    Attributes:
        outcomes: number of inputs by outcome.
        defects: defects by name.
        seconds: CPU time or, for a server, elapsed time.
        slowest_seconds: time of the slowest input.
        slowest_number: number of the slowest input.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    defects: dict[str, Defect] = field(default_factory=dict)
    seconds: float = 0.0
    slowest_seconds: float = 0.0
    slowest_number: int = -1

    @property
    def num_inputs(self) -> int:
        """Number of inputs that were run."""
        return self.outcomes.total()

    def took(self, seconds: float, number: int) -> None:
        """Count the time of an input."""
        self.seconds += seconds
        if seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest_number = seconds, number

    def found(self, what: str, evidence: str, number: int) -> None:
        """Count the finding of an input."""
        if (known := self.defects.get(what)) is None:
            self.defects[what] = Defect(what, evidence[:2000], number)
        else:
            known.count += 1
            if 0 <= number < known.number:
                known.number, known.evidence = number, evidence[:2000]

    def add(self, other: Tally) -> None:
        """Add the inputs of another part of the run."""
        self.outcomes += other.outcomes
        self.seconds += other.seconds
        if other.slowest_seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest_number = other.slowest_seconds, other.slowest_number
        for each in other.defects.values():
            count = self.defects[each.what].count if each.what in self.defects else 0
            self.found(each.what, each.evidence, each.number)
            self.defects[each.what].count = count + each.count


def describe(error: BaseException) -> tuple[str, str]:
    """Name of an error, equal for inputs with the same defect, and the evidence."""
    if isinstance(error, Finding):
        return error.what, error.evidence
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(str(ROOT))]
    served = [frame for frame in own if "/robustness/fuzz/" not in frame.filename] or own
    where = ""
    if served:
        path = Path(served[-1].filename).relative_to(ROOT)
        where = f" in {path}, {served[-1].name}"
    text = "".join(traceback.format_exception(error))
    return f"{type(error).__name__}{where}", text[-2000:]


def shown(given: Any, most: int = 400) -> str:
    """Format an input for people."""
    text = repr(given)
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def expect(holds: bool, what: str, evidence: object = "") -> None:
    """Raise `Finding` unless a property holds."""
    if not holds:
        raise Finding(what, shown(evidence))

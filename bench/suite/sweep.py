"""The search for the best settings of a load: coarse to fine, over all of them.

Successive halving (Jamieson and Talwalkar, 2016): every setting gets a short run, the better ones a
longer one, and so on. Two rules shorten it without leaving a good setting out:

- In a closed loop of N users no more than N sequences wait, so larger maximum batches are one and
  the same setting.
- The first round tries one instruction set for each combination of the other settings, in
  alternation. The combinations that go on are tried with every instruction set.

Each round's runs are kept, and the report's settings are those of the last round's winner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model.bundle.processor import has_instructions, num_usable_cores

Settings = Mapping[str, Any]

_ISA = "isa"
_BATCH = "max_batch"


@dataclass(frozen=True)
class Round:
    """One round of the search.

    Attributes:
        seconds, warmup: duration and warm-up of each run, in seconds.
        keep: number of settings for the next round; 1 for the last round.
    """

    seconds: float
    warmup: float
    keep: int


@dataclass(frozen=True)
class Sweep:
    """The settings to try, and the rounds.

    Attributes:
        rounds: the rounds, from the shortest runs to the longest.
    """

    settings: tuple[dict[str, Any], ...]
    rounds: tuple[Round, ...]

    def candidates(self, most_in_flight: int | None) -> list[Settings]:
        """The settings of the first round; `most_in_flight` is None for an open loop."""
        chosen = distinct(self.settings, most_in_flight)
        return one_isa_each(chosen) if len(self.rounds) > 1 else chosen

    def next_candidates(
        self, number: int, scored: Sequence[tuple[float, Settings]], most_in_flight: int | None
    ) -> list[Settings]:
        """The settings after round `number` (from 0), best first; higher scores are better."""
        ranked = [settings for _, settings in sorted(scored, key=lambda item: -item[0])]
        best = ranked[: self.rounds[number].keep]
        if number > 0 or len(self.rounds) == 1:
            return best
        return with_every_isa(best, distinct(self.settings, most_in_flight))


def workers_and_threads(num_cores: int) -> list[tuple[int, int]]:
    """All pairs whose product is `num_cores`, from one thread a worker to one worker."""
    return [
        (num_cores // threads, threads)
        for threads in range(1, num_cores + 1)
        if num_cores % threads == 0
    ]


def sweep_settings(
    batches: tuple[int, ...],
    windows_ms: tuple[float, ...],
    isas: tuple[str, ...],
    num_cores: int | None = None,
) -> tuple[dict[str, Any], ...]:
    """CTranslate2's settings to try: workers and threads on all cores, with all other settings.

    Args:
        windows_ms: waits of a batch's first sentence, in milliseconds.
        isas: instruction sets; "" leaves the choice to CTranslate2.
        num_cores: number of cores to share out; None for those that our own server takes.
    """
    cores = num_usable_cores() if num_cores is None else num_cores
    return tuple(
        {"inter_threads": inter, "intra_threads": intra, _BATCH: batch, "window_ms": window}
        | ({_ISA: isa} if isa else {})
        for inter, intra in workers_and_threads(cores)
        for batch in batches
        for window in windows_ms
        for isa in isas
    )


def isas_here(*isas: str) -> tuple[str, ...]:
    """The instruction sets that this processor has, of those named; "" is CTranslate2's choice."""
    return tuple(isa for isa in isas if not isa or has_instructions(isa))


def distinct(settings: Sequence[Settings], most_in_flight: int | None) -> list[Settings]:
    """The settings without those whose largest batch can't be reached."""
    if most_in_flight is None:
        return list(settings)
    batches = sorted({one[_BATCH] for one in settings})
    enough = next((batch for batch in batches if batch >= most_in_flight), batches[-1])
    return [one for one in settings if one[_BATCH] <= enough]


def one_isa_each(settings: Sequence[Settings]) -> list[Settings]:
    """One setting of each family that differs only in the instruction set; sets take turns."""
    return [
        family[place % len(family)] for place, family in enumerate(_families(settings).values())
    ]


def with_every_isa(chosen: Sequence[Settings], settings: Sequence[Settings]) -> list[Settings]:
    """All members of the chosen settings' families, in their order."""
    families = _families(settings)
    return [one for family in dict.fromkeys(map(_family, chosen)) for one in families[family]]


def _families(settings: Sequence[Settings]) -> dict[tuple[Any, ...], list[Settings]]:
    families: dict[tuple[Any, ...], list[Settings]] = {}
    for one in settings:
        families.setdefault(_family(one), []).append(one)
    return families


def _family(settings: Settings) -> tuple[Any, ...]:
    return tuple((name, value) for name, value in settings.items() if name != _ISA)
